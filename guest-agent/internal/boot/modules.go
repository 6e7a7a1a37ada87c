package boot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
)

// spare are the modules that only a machine needs which becomes another one: they tell of connections and end them
// (sock_diag(7)). To load them takes 30 ms of an emulated boot, to keep them 100 KB.
var spare = [...]string{"inet_diag.ko", "tcp_diag.ko", "udp_diag.ko"}

// loadModules loads the kernel modules named in the list file, one path a line, each after what it depends on, and returns the
// contents of the spare ones. A failure is not the end: what matters of it shows up as a missing root device or port.
func loadModules(list string) (kept [][]byte) {
	content, err := os.ReadFile(list)
	if err != nil {
		return nil // a kernel with everything built in has no list
	}
	for path := range strings.FieldsSeq(string(content)) {
		var err error
		if slices.Contains(spare[:], filepath.Base(path)) {
			var module []byte
			module, err = os.ReadFile(path)
			kept = append(kept, module)
		} else {
			err = loadModule(path)
		}
		if err != nil {
			console.Log("module ", path, ": ", err.Error())
		}
	}
	return kept
}

// LoadSpareModules loads what loadModules has kept. To repeat it changes nothing.
func (s *System) LoadSpareModules() error {
	for _, module := range s.spareModules {
		if err := unix.InitModule(module, ""); err != nil && err != unix.EEXIST {
			return os.NewSyscallError("init_module", err)
		}
	}
	return nil
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
