package files

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

// problem turns an error of the kernel into the one that the host gets, with the path in its text. Other errors, such as
// those of the connection, are returned as they are. The state of the machine causes nearly all errors of the kernel, so
// they are conflicts, and not internal errors.
func problem(path Path, err error) error {
	var number unix.Errno
	if err == nil || !errors.As(err, &number) || errors.Is(err, context.Canceled) {
		return err
	}
	code, text := explain(number)
	return fault.New(code, text+": "+path.String())
}

func explain(number unix.Errno) (fault.Code, string) {
	switch number {
	case unix.ENOENT:
		return fault.NotFound, "no such file or folder"
	case unix.ENOSPC:
		return fault.DiskFull, "the file system is full"
	case unix.EDQUOT:
		return fault.DiskFull, "the disk quota is used up"
	case unix.ENAMETOOLONG:
		return fault.Validation, "the path or a name in it is too long"
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM:
		return fault.Internal, number.Error()
	case unix.EEXIST:
		return fault.Conflict, "it exists already"
	case unix.ENOTDIR:
		return fault.Conflict, "a part of the path is not a folder"
	case unix.EISDIR:
		return fault.Conflict, "it is a folder"
	case unix.ENOTEMPTY:
		return fault.Conflict, "the folder is not empty"
	case unix.ELOOP:
		return fault.Conflict, "symbolic links form a loop"
	case unix.EBUSY:
		return fault.Conflict, "it is in use, for example as a mount point"
	case unix.EXDEV:
		return fault.Conflict, "the two places are on different file systems"
	case unix.EROFS:
		return fault.Conflict, "the file system is read-only"
	case unix.EPERM, unix.EACCES:
		return fault.Conflict, "the kernel does not allow it, not even for root"
	}
	return fault.Conflict, number.Error()
}

func conflict(text string, path Path) error {
	return fault.New(fault.Conflict, text+": "+path.String())
}
