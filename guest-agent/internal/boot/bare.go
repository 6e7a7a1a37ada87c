// Detaches the root disk of a bare machine, which mounts its root disk only with its identity. The host boots a bare
// machine with a placeholder disk and saves it as a template. A clone of the template gets the disk of a real machine
// instead of the placeholder. So the guest's kernel must forget the placeholder's size and first sectors before the
// template is saved. Therefore the agent unbinds the disk from its driver, which removes the block device with all its cached pages. Later
// the agent binds the disk again, and the driver reads the properties of the disk that is there now.

package boot

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// driver is a driver and the device that was unbound from it. The zero value means that nothing was unbound.
type driver struct {
	folder string // of the driver in sysfs
	device string // name of the device on its bus
}

// letGoOfRoot unbinds the root disk from its driver.
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

// driverOf finds the driver of the block device with the name disk, such as vda. class is the folder in sysfs that lists
// all block devices.
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

// bind gives the device back to the driver. The block device exists again when bind returns.
func (d driver) bind() error {
	if d.folder == "" {
		return nil
	}
	return os.WriteFile(d.folder+"/bind", []byte(d.device), 0)
}

// devicePatience is how long the boot waits for the root disk.
const devicePatience = 5 * time.Second
