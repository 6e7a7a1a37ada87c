// A bare machine waits for its identity before it mounts the root disk. Until then the disk is a placeholder: the machine
// is saved as a template, and each clone of the template has the disk of another machine in its place. So the kernel must
// keep nothing of the placeholder, such as its size or its first sectors. The agent takes the disk away from its driver,
// which removes the block device with all its cached pages. Later it gives the disk back, and the driver looks at it anew.

package boot

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// driver is the driver of a device that it does not serve at present. The zero value is none.
type driver struct {
	folder string // of the driver in sysfs
	device string // name of the device on its bus
}

// letGoOfRoot takes the root disk away from its driver.
func (s *System) letGoOfRoot() error {
	if err := awaitDevice(s.rootDevice, devicePatience); err != nil {
		return err
	}
	found, err := driverOf("/sys/class/block", filepath.Base(s.rootDevice))
	if err != nil {
		return err
	}
	if err := os.WriteFile(found.folder+"/unbind", []byte(found.device), 0); err != nil {
		return err
	}
	if _, err := os.Stat(s.rootDevice); !os.IsNotExist(err) {
		return &os.PathError{Op: "unbind", Path: s.rootDevice, Err: unix.EBUSY}
	}
	s.rootDriver = found
	return nil
}

// driverOf returns the driver of a block device. class is the folder of all block devices in sysfs.
func driverOf(class, disk string) (driver, error) {
	device, err := filepath.EvalSymlinks(filepath.Join(class, disk, "device"))
	if err != nil {
		return driver{}, err
	}
	folder, err := filepath.EvalSymlinks(device + "/driver")
	if err != nil {
		return driver{}, err
	}
	return driver{folder: folder, device: filepath.Base(device)}, nil
}

// bind gives the device back to its driver. The block device exists when bind returns.
func (d driver) bind() error {
	if d.folder == "" {
		return nil
	}
	return os.WriteFile(d.folder+"/bind", []byte(d.device), 0)
}

// devicePatience is how long the boot waits for the root disk.
const devicePatience = 5 * time.Second
