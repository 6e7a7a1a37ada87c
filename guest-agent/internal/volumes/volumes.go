// Package volumes mounts the disks that the host plugs into the running machine, and gives them back clean.
//
//	plugged in --Mount--> mounted --Unmount--> unmounted, out of the kernel --> unplugged by the host
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

// mountOptions: an error stops the writing before it makes more. New inode tables are not zeroed: what was never written
// on a disk of the host reads as zeros already.
const mountOptions = "errors=remount-ro,noinit_itable"

const (
	// A file that was closed a moment ago may hold its file system for a moment more.
	busyTries = 4
	busyPause = 25 * time.Millisecond
)

// Table holds the volumes that the host has asked to mount.
type Table struct {
	bus bus

	mu      sync.Mutex // held while something is mounted or unmounted
	volumes map[string]volume
}

type volume struct {
	slot int
	path string // without symbolic links
	disk *disk
}

// New returns a table without volumes.
func New() *Table {
	return &Table{bus: bus{sys: "/sys", dev: "/dev"}, volumes: make(map[string]volume)}
}

// Mount waits for the disk of the slot and mounts it at the path, unless it is mounted there. On an error it is not.
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

// makeMountPoint makes the folder if need be and returns its path without symbolic links.
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

// checkPlace reports whether the device is mounted at the path, and refuses a place that would hide another mount.
func checkPlace(path, number string) (isMounted bool, err error) {
	mounts, err := mounttable.Own()
	if err != nil {
		return false, err
	}
	elsewhere := ""
	isTaken := false
	for _, m := range mounts {
		switch {
		case m.Path == path: // of several, the last one is seen
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

// Unmount writes what is dirty, unmounts the volume and takes its disk out of the kernel. If something holds it, it stays
// as it is. A volume that is not known is not there.
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

// otherMounts lists in words what is mounted from the volume or on it, beside its own mount.
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

// unmount gives up the file system, if it is mounted still.
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
	if isMounted { // the same file system as before: nobody misses more than a moment of it
		if err := unix.Mount(v.disk.node, v.path, "ext4", 0, mountOptions); err != nil {
			console.Log("mount again: ", err.Error())
		}
	}
	return busy(holders(v.disk.number))
}

// ignoreGone takes a disk that the host has pulled for one that nobody uses.
func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// detach unmounts, and says what is in the way.
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

// flush writes what is dirty on a file system. It may take long, and nothing is blocked by it.
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

// LetGo forgets every volume, for a machine that becomes another: the disks are those of the machine that it was, and are not
// there any more. What is open on them fails.
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
