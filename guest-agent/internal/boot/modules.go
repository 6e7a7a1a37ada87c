package boot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
)

// spare lists the modules that list and end network connections (sock_diag(7)). Only a machine that gets a new identity
// after a memory snapshot needs them. The boot keeps their files in memory (100 KB) instead of loading them, because
// loading takes 30 ms of an emulated boot.
var spare = [...]string{"inet_diag.ko", "tcp_diag.ko", "udp_diag.ko"}

// loadModules loads the kernel modules in the list file, one path a line, sorted so that each comes after its
// dependencies. It does not load the spare modules, but returns their contents. It only logs failures: if an important
// module is missing, the boot fails later for lack of the root device or the port.
func loadModules(list string) (kept [][]byte) {
	content, err := os.ReadFile(list)
	if err != nil {
		return nil // there is no list for a kernel that has all drivers built in
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

// LoadSpareModules loads the modules that loadModules has kept. Repeated calls change nothing.
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
