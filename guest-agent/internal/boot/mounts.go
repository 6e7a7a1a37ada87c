package boot

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
)

type mount struct {
	source, target, fstype, data string
	flags                        uintptr
	mode                         os.FileMode // of a mount point that has to be made
}

const hardened = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV

// kernelMounts are needed to find the root device. switchRoot moves them to the new root.
var kernelMounts = [...]mount{
	{"devtmpfs", "/dev", "devtmpfs", "mode=755", unix.MS_NOSUID, 0o755},
	{"proc", "/proc", "proc", "", hardened, 0o555},
	{"sysfs", "/sys", "sysfs", "", hardened, 0o555},
}

// systemMounts are what programs expect to find in a running system. They are inside kernelMounts and move with them.
var systemMounts = [...]mount{
	{"devpts", "/dev/pts", "devpts", "gid=5,mode=620,ptmxmode=666", unix.MS_NOSUID | unix.MS_NOEXEC, 0o755},
	{"tmpfs", "/dev/shm", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV, 0o1777},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", "", hardened, 0o755},
}

// rootMounts are on folders of the root disk.
var rootMounts = [...]mount{
	{"tmpfs", "/run", "tmpfs", "mode=755", unix.MS_NOSUID | unix.MS_NODEV, 0o755},
}

// deviceLinks are the symbolic links under /dev: target, then path of the link.
var deviceLinks = [...][2]string{
	{"/proc/self/fd", "/dev/fd"},
	{"/proc/self/fd/0", "/dev/stdin"},
	{"/proc/self/fd/1", "/dev/stdout"},
	{"/proc/self/fd/2", "/dev/stderr"},
	{"pts/ptmx", "/dev/ptmx"},
}

func (m mount) attach() error {
	if err := os.MkdirAll(m.target, m.mode.Perm()); err != nil {
		return err
	}
	err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data)
	if err == unix.EBUSY {
		return nil // the kernel has mounted devtmpfs by itself
	}
	if err != nil {
		return &os.PathError{Op: "mount", Path: m.target, Err: err}
	}
	return nil
}

func attachAll(mounts []mount) error {
	for _, m := range mounts {
		if err := m.attach(); err != nil {
			return err
		}
	}
	return nil
}

func linkDevices() {
	for _, link := range deviceLinks {
		if link[1] == "/dev/ptmx" {
			_ = os.Remove(link[1]) // devtmpfs has a device node there, which belongs to the first devpts instance
		}
		if err := os.Symlink(link[0], link[1]); err != nil && !os.IsExist(err) {
			console.Log(err.Error())
		}
	}
}

// enableControllers enables the resource controllers for the control groups below the root group. It enables each one
// with a write of its own, because the kernel refuses a whole write when it lacks one of the controllers.
func enableControllers(group string) {
	content, err := os.ReadFile(group + "/cgroup.controllers")
	if err != nil {
		console.Log(err.Error())
		return
	}
	for controller := range strings.FieldsSeq(string(content)) {
		switch controller {
		case "cpu", "memory", "pids":
			if err := os.WriteFile(group+"/cgroup.subtree_control", []byte("+"+controller), 0); err != nil {
				console.Log(err.Error())
			}
		}
	}
}
