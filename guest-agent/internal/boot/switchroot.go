// Replaces the initramfs by the root file system on the disk while the agent runs. The agent's program stays in memory,
// and it needs no file of the image.

package boot

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
)

const newRoot = "/root-fs"

var errNotInitramfs = errors.New("the first root is not an initramfs")

// mountRoot waits for the block device and mounts it. noinit_itable skips the zeroing of new inode tables when the file
// system grows, because the added space of a disk reads as zeros anyway.
func mountRoot(device string) error {
	if err := awaitDevice(device, devicePatience); err != nil {
		return err
	}
	root := mount{device, newRoot, "ext4", "noinit_itable", unix.MS_NOATIME, 0o755}
	return root.attach()
}

func awaitDevice(path string, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		_, err := os.Stat(path)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// switchRoot moves /dev, /proc and /sys to the new root, frees the memory of the initramfs, and makes the new root the
// root folder.
func switchRoot() error {
	for _, m := range kernelMounts {
		target := newRoot + m.target
		if err := ensureFolder(target, m.mode); err != nil {
			return err
		}
		if err := unix.Mount(m.target, target, "", unix.MS_MOVE, ""); err != nil {
			return &os.PathError{Op: "move", Path: m.target, Err: err}
		}
	}
	if err := emptyInitramfs(); err != nil {
		console.Log("initramfs not freed: ", err.Error())
	}
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return &os.PathError{Op: "move", Path: newRoot, Err: err}
	}
	if err := unix.Chroot("."); err != nil {
		return &os.PathError{Op: "chroot", Path: newRoot, Err: err}
	}
	return os.Chdir("/")
}

// ensureFolder makes the folder if it is missing. It refuses a symbolic link: the mount would go to the link's target
// in the initramfs, and after switchRoot /proc would be a folder of the disk with whatever a user put there.
func ensureFolder(path string, mode os.FileMode) error {
	info, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return os.Mkdir(path, mode)
	}
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "mount", Path: path, Err: unix.ENOTDIR}
	}
	return err
}

// emptyInitramfs deletes all files on the file system of /, which frees their memory. It refuses to delete anything
// when that file system is not a RAM disk.
func emptyInitramfs() error {
	var fs unix.Statfs_t
	if err := unix.Statfs("/", &fs); err != nil {
		return err
	}
	if fs.Type != unix.RAMFS_MAGIC && fs.Type != unix.TMPFS_MAGIC {
		return errNotInitramfs
	}
	device, err := deviceOf("/")
	if err != nil {
		return err
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := "/" + entry.Name()
		if on, err := deviceOf(path); err != nil || on != device {
			continue // another file system, such as the new root
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

func deviceOf(path string) (uint64, error) {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	return stat.Dev, err
}
