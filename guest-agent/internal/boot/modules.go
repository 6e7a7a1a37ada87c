package boot

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
)

// loadModules loads the kernel modules named in the list file, one path a line, each after what it depends on. A
// failure is not the end: what matters of it shows up as a missing root device or port.
func loadModules(list string) {
	content, err := os.ReadFile(list)
	if err != nil {
		return // a kernel with everything built in has no list
	}
	for path := range strings.FieldsSeq(string(content)) {
		if err := loadModule(path); err != nil {
			console.Log("module ", path, ": ", err.Error())
		}
	}
}

func loadModule(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.FinitModule(fd, "", 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}
