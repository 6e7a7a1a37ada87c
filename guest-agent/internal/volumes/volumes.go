// Package volumes mounts disks that the host plugs into the running machine. It unmounts them cleanly before the host
// unplugs them.
//
//	plugged in --Mount--> mounted --Unmount--> unmounted, device deleted --> unplugged by the host
package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
	"sandbar/guest-agent/internal/mounttable"
)

// mountOptions: errors=remount-ro stops all writing after a file system error, so that it does no further damage.
// noinit_itable skips the zeroing of new inode tables, because unwritten parts of a volume read as zeros anyway.
const mountOptions = "errors=remount-ro,noinit_itable"

const (
	// A file system can stay busy for a moment after its last file was closed, so detach tries several times.
	busyTries = 4
	busyPause = 25 * time.Millisecond
)

// Table holds the volumes that are mounted at the host's request.
type Table struct {
	bus bus

	mu      sync.Mutex // held while something is mounted or unmounted
	volumes map[string]volume
}

type volume struct {
	slot int
	path string // mount point, with symbolic links resolved
	disk *disk
}

// New returns a table without volumes.
func New() *Table {
	return &Table{bus: bus{sys: "/sys", dev: "/dev"}, volumes: make(map[string]volume)}
}

// Mount waits for the disk in the slot and mounts it at the path. If it is mounted there already, Mount changes
// nothing. The error is a conflict if the owner of the machine has to fix something, such as a file at the path.
func (t *Table) Mount(ctx context.Context, id string, request Request) error {
	found, err := t.bus.await(ctx, request.Slot)
	if err != nil {
		return internal(fmt.Sprintf("the disk in slot %d: %v", request.Slot, err))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for other, volume := range t.volumes {
		if other != id && volume.slot == request.Slot {
			return conflict(fmt.Sprintf("slot %d has another volume", request.Slot))
		}
	}
	path, err := makeMountPoint(request.Path)
	if err != nil {
		return err
	}
	own, isKnown := t.volumes[id]
	if isKnown && own.slot != request.Slot {
		return conflict("the volume is in another slot")
	}
	isMounted, err := checkPlace(path, found.number)
	if err != nil {
		return err
	}
	if !isMounted {
		if err := mount(found, path); err != nil {
			return err
		}
	}
	t.volumes[id] = volume{slot: request.Slot, path: path, disk: found}
	return nil
}

// makeMountPoint creates the folder if it does not exist, and returns its path with symbolic links resolved.
func makeMountPoint(path string) (string, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", conflict("the mount point cannot be made: " + err.Error())
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", conflict("the mount point cannot be used: " + err.Error())
	}
	return real, nil
}

// checkPlace reports whether the device is already mounted at the path. The error is a conflict if the device is
// mounted elsewhere, or if a mount at the path would hide another mount.
func checkPlace(path, number string) (isMounted bool, err error) {
	mounts, err := mounttable.Own()
	if err != nil {
		return false, err
	}
	elsewhere := ""
	isTaken := false
	for _, m := range mounts {
		switch {
		case m.Path == path: // of several mounts at one path, the last one is visible
			isMounted, isTaken = m.Device == number, m.Device != number
		case m.Device == number:
			elsewhere = m.Path
		}
	}
	switch {
	case isMounted:
		return true, nil
	case elsewhere != "":
		return false, conflict("the volume is mounted at " + printable(elsewhere))
	case isTaken:
		return false, conflict("another file system is mounted at " + printable(path))
	}
	for _, m := range mounts {
		if isBelow(m.Path, path) {
			return false, conflict(fmt.Sprintf("another file system is mounted below %s, at %s", printable(path), printable(m.Path)))
		}
	}
	return false, nil
}

func mount(found *disk, path string) error {
	err := unix.Mount(found.node, path, "ext4", 0, mountOptions)
	switch err {
	case nil:
		return nil
	case unix.EINVAL, unix.EUCLEAN, unix.EBADMSG, unix.EFBIG:
		return conflict(fmt.Sprintf("the volume has no ext4 file system, or one that is damaged: %v", err))
	case unix.EBUSY:
		return conflict("the volume is in use, without being mounted where the machine's own programs see it")
	}
	return internal(fmt.Sprintf("mount: %v", err))
}

// Unmount writes dirty data, unmounts the volume and deletes its device from the kernel. If the volume is in use, it
// stays mounted, and the error is a conflict that names what uses it. An unknown volume is no error.
func (t *Table) Unmount(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	own, ok := t.volumes[id]
	if !ok {
		return nil
	}
	mounts, err := mounttable.Own()
	if err != nil {
		return err
	}
	if held := otherMounts(mounts, own); len(held) > 0 {
		return busy(held)
	}
	if err := own.unmount(mounts); err != nil {
		return err
	}
	if err := own.disk.remove(); err != nil {
		return internal("the disk: " + err.Error())
	}
	delete(t.volumes, id)
	return nil
}

// otherMounts describes mounts that prevent an unmount: further mounts of the volume, and mounts on it or below it.
func otherMounts(mounts []mounttable.Mount, own volume) []string {
	var held []string
	for _, m := range mounts {
		isOwn := m.Device == own.disk.number
		if isOwn && m.Path != own.path || !isOwn && (m.Path == own.path || isBelow(m.Path, own.path)) {
			held = append(held, "another mount at "+printable(m.Path))
		}
	}
	return held
}

// unmount unmounts the volume, if it is still mounted. If the kernel uses the disk even then, it mounts the volume
// again and returns a conflict.
func (v volume) unmount(mounts []mounttable.Mount) error {
	isMounted := false
	for _, m := range mounts {
		isMounted = isMounted || m.Device == v.disk.number
	}
	if isMounted {
		if err := flush(v.path); err != nil {
			return internal("what was written could not be kept: " + err.Error())
		}
		if err := v.detach(); err != nil {
			return err
		}
	}
	isClaimed, err := v.disk.isClaimed()
	if err != nil || !isClaimed {
		return ignoreGone(err)
	}
	if isMounted { // mount it again; programs saw it missing for only a moment
		if err := unix.Mount(v.disk.node, v.path, "ext4", 0, mountOptions); err != nil {
			console.Log("mount again: ", err.Error())
		}
	}
	return busy(holders(v.disk.number))
}

// ignoreGone returns nil for the errors of a disk that the host has already unplugged.
func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// detach calls umount. If the volume stays busy, the error names the processes that use it.
func (v volume) detach() error {
	for range busyTries {
		err := unix.Unmount(v.path, unix.UMOUNT_NOFOLLOW)
		if err == nil {
			return nil
		}
		if err != unix.EBUSY {
			return internal("unmount: " + err.Error())
		}
		if held := holders(v.disk.number); len(held) > 0 {
			return busy(held)
		}
		time.Sleep(busyPause)
	}
	return busy(nil)
}

// flush writes the dirty data of a file system. This may take long, but does not block other programs.
func flush(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

// isBelow reports whether path is inside the folder.
func isBelow(path, folder string) bool { return strings.HasPrefix(path, folder+"/") }

// LetGo drops all volumes when the machine gets a new identity after a memory snapshot. Their disks belong to the
// machine of the snapshot and are not plugged into this one. Open files on them fail from now on.
func (t *Table) LetGo() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.volumes {
		if err := unix.Unmount(v.path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL {
			console.Log("unmount ", v.path, ": ", err.Error())
		}
		if err := v.disk.remove(); err != nil {
			console.Log("disk: ", err.Error())
		}
	}
	clear(t.volumes)
}
