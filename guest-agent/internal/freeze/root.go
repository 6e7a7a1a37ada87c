package freeze

import (
	"os"

	"golang.org/x/sys/unix"
)

// FIFREEZE and FITHAW of linux/fs.h: _IOWR('X', 119, int) and _IOWR('X', 120, int).
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// root freezes the root file system. Its descriptor is opened before the freeze, so that a thaw needs no path lookup.
type root struct{ fd int }

func openRoot() (subject, error) {
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	return root{fd}, nil
}

func (r root) flush() error  { return os.NewSyscallError("syncfs", unix.Syncfs(r.fd)) }
func (r root) freeze() error { return unix.IoctlSetInt(r.fd, fiFreeze, 0) }
func (r root) thaw() error   { return unix.IoctlSetInt(r.fd, fiThaw, 0) }
func (r root) close()        { _ = unix.Close(r.fd) }
