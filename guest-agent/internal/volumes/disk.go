// How the guest's kernel shows the disk in a slot of the host's SCSI controller.

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
	// diskPatience is how long a disk that was plugged in may take to show up.
	diskPatience = 10 * time.Second
	// recheck is how long to wait for news of a disk before looking again without any: news can be lost.
	recheck = 500 * time.Millisecond
)

var errNoDisk = errors.New("the disk does not show up")

// disk is a block device of the SCSI bus.
type disk struct {
	scsi   string // its folder in sysfs
	node   string // its path under /dev
	number string // its device number as in the mount table, such as 8:0
}

// bus is where disks show up. Tests have another one.
type bus struct {
	sys string // /sys
	dev string // /dev
}

// find returns the disk of a slot if it is there and can be opened.
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
		return nil, &os.PathError{Op: "open", Path: found.node, Err: err} // the kernel is still reading its geometry
	}
	_ = unix.Close(fd)
	return found, nil
}

// host returns the number of the virtio-scsi controller: a program can make controllers of other kinds.
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

// await returns the disk of a slot as soon as it is there.
func (b bus) await(ctx context.Context, slot int) (*disk, error) {
	news, err := listen() // before the first look: what happens after it is heard
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

// scan has the kernel look at the slot: its controller may have told it of the disk before it listened.
func (b bus) scan(slot int) {
	if host, err := b.host(); err == nil {
		_ = os.WriteFile(b.sys+"/class/scsi_host/host"+host+"/scan", []byte("0 "+strconv.Itoa(slot)+" 0"), 0)
	}
}

// remove takes the disk out of the kernel, which writes the disk's cache out first.
func (d *disk) remove() error {
	err := os.WriteFile(d.scsi+"/delete", []byte("1"), 0)
	if errors.Is(err, unix.ENODEV) || os.IsNotExist(err) {
		return nil
	}
	return err
}

// isClaimed reports whether the kernel uses the disk: a file system on it is mounted, in whatever mount namespace.
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
