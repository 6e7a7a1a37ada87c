package files

import (
	"sync"

	"golang.org/x/sys/unix"
)

// namesSize is the size of the buffer for the names that the kernel returns in one step. A walk through nested folders
// holds one buffer for each level.
const namesSize = 8 << 10

var namesBuffers = sync.Pool{New: func() any { return new([namesSize]byte) }}

// readNames calls each(name) for every name in an open folder, except "." and "..". It starts at the beginning of the
// folder; the names come in no particular order. It stops at the first error of each and returns it.
func readNames(folder int, each func(name string) error) error {
	if _, err := unix.Seek(folder, 0, unix.SEEK_SET); err != nil {
		return err
	}
	space := namesBuffers.Get().(*[namesSize]byte)
	defer namesBuffers.Put(space)
	var found []string
	for {
		n, err := again(func() (int, error) { return unix.Getdents(folder, space[:]) })
		if err != nil || n == 0 {
			return err
		}
		_, _, found = unix.ParseDirent(space[:n], -1, found[:0])
		for _, name := range found {
			if err := each(name); err != nil {
				return err
			}
		}
	}
}

// openToRead opens a folder whose names can be read. It follows no symbolic link at the name.
func openToRead(folder int, name string) (int, error) {
	return openAt(folder, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
}

// kernelFileSystems are the file systems whose files the kernel generates, such as /proc. Most of these files have no
// known size, and new files cannot be made there as on a disk. The numbers without a name are those of configfs and
// mqueue in linux/magic.h.
var kernelFileSystems = [...]uint32{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC,
	unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.EFIVARFS_MAGIC,
	unix.PSTOREFS_MAGIC, unix.SELINUX_MAGIC, unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC, 0x62656570, 0x19800202,
}

// isOfKernel reports whether an open file or folder is on one of the kernelFileSystems.
func isOfKernel(fd int) (bool, error) {
	var info unix.Statfs_t
	if _, err := again(func() (int, error) { return 0, unix.Fstatfs(fd, &info) }); err != nil {
		return false, err
	}
	for _, kind := range kernelFileSystems {
		if uint32(info.Type) == kind {
			return true, nil
		}
	}
	return false, nil
}
