// Finds the block device of a disk that the host has plugged into a slot of the SCSI controller.

package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// diskPatience is how long a disk may take to appear in the guest after the host has plugged it in.
	diskPatience = 10 * time.Second
	// recheck is how long to wait for a device event before looking for the disk anyway, because events can be lost.
	recheck = 500 * time.Millisecond
)

var errNoDisk = errors.New("the disk does not show up")

// disk is a block device of the SCSI bus.
type disk struct {
	scsi   string // its folder in sysfs
	node   string // its path under /dev
	number string // its device number in the form of the mount table, such as 8:0
}

// bus names the folders in which disks appear. Tests use other folders.
type bus struct {
	sys string // /sys
	dev string // /dev
}

// find returns the disk in a slot, or an error if there is none or it cannot be opened yet.
func (b bus) find(slot int) (*disk, error) {
	host, err := b.host()
	if err != nil {
		return nil, err
	}
	scsi := b.sys + "/bus/scsi/devices/" + host + ":0:" + strconv.Itoa(slot) + ":0"
	blocks, err := os.ReadDir(scsi + "/block")
	if err != nil || len(blocks) == 0 {
		return nil, errNoDisk
	}
	name := blocks[0].Name()
	number, err := os.ReadFile(filepath.Join(scsi, "block", name, "dev"))
	if err != nil {
		return nil, errNoDisk
	}
	found := &disk{scsi: scsi, node: b.dev + "/" + name, number: strings.TrimSpace(string(number))}
	fd, err := unix.Open(found.node, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: found.node, Err: err} // usually the kernel still reads its geometry
	}
	_ = unix.Close(fd)
	return found, nil
}

// host returns the SCSI host number of the virtio-scsi controller. It skips SCSI hosts with
// another driver, because programs in the machine can create such hosts.
func (b bus) host() (string, error) {
	hosts, _ := filepath.Glob(b.sys + "/class/scsi_host/host*") // the pattern is well formed
	for _, host := range hosts {
		driver, err := os.ReadFile(host + "/proc_name")
		if err == nil && strings.TrimSpace(string(driver)) == "virtio_scsi" {
			return strings.TrimPrefix(filepath.Base(host), "host"), nil
		}
	}
	return "", errors.New("there is no virtio-scsi controller")
}

// await waits up to diskPatience for the disk in a slot and returns it.
func (b bus) await(ctx context.Context, slot int) (*disk, error) {
	news, err := listen() // before the first find, so that no later event is missed
	if err != nil {
		return nil, err
	}
	defer news.Close()
	for deadline := time.Now().Add(diskPatience); ; {
		found, err := b.find(slot)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return found, errors.Join(err, ctx.Err())
		}
		if !heard(ctx, news) {
			b.scan(slot)
		}
	}
}

// scan makes the kernel look for a disk in the slot, for the case that the kernel has missed the controller's event.
func (b bus) scan(slot int) {
	if host, err := b.host(); err == nil {
		_ = os.WriteFile(b.sys+"/class/scsi_host/host"+host+"/scan", []byte("0 "+strconv.Itoa(slot)+" 0"), 0)
	}
}

// remove deletes the disk's device from the kernel. The kernel first flushes the disk's cache. It is no error if the
// device is already gone.
func (d *disk) remove() error {
	err := os.WriteFile(d.scsi+"/delete", []byte("1"), 0)
	if errors.Is(err, unix.ENODEV) || os.IsNotExist(err) {
		return nil
	}
	return err
}

// isClaimed reports whether the kernel still uses the disk, such as for a mount in any mount namespace.
func (d *disk) isClaimed() (bool, error) {
	fd, err := unix.Open(d.node, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err == unix.EBUSY {
		return true, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "open", Path: d.node, Err: err}
	}
	return false, unix.Close(fd)
}
