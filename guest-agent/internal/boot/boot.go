// Package boot sets up the machine after the kernel has started the agent: modules, mounts, loopback and root disk. It
// runs no program of the image, because an image need not contain any.
package boot

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
	"sandbar/guest-agent/internal/modprobe"
)

// System is the machine that boots.
type System struct {
	// IsBare says that the host asked for a machine whose root disk stays unmounted until its identity arrives.
	IsBare bool

	rootDevice    string
	rootDriver    driver // set while the kernel has let go of the root disk
	isRootMounted atomic.Bool
	spareModules  [][]byte
}

// Start does everything that needs no root disk. It refuses a machine whose timer does not work. After an error the
// machine is unusable. Start forbids the kernel to run the disk's modprobe until the identity is applied. In a bare
// machine it also makes the kernel forget the disk, so that another disk may take its place.
func Start(loader *modprobe.Loader) (*System, error) {
	if err := attachAll(kernelMounts[:]); err != nil {
		return nil, err
	}
	if err := console.Attach(); err != nil {
		console.Log("console: ", err.Error())
	}
	if err := checkTimers("/proc/interrupts"); err != nil {
		return nil, err
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	system := &System{rootDevice: rootDevice(string(line)), IsBare: isBare(string(line))}
	system.spareModules = loadModules("/modules.list")
	if err := loader.Forbid(); err != nil {
		return nil, err
	}
	if err := attachAll(systemMounts[:]); err != nil {
		return nil, err
	}
	linkDevices()
	enableControllers("/sys/fs/cgroup")
	if err := raiseLoopback(); err != nil {
		console.Log("loopback: ", err.Error())
	}
	if system.IsBare {
		return system, system.letGoOfRoot()
	}
	return system, nil
}

// MountRoot mounts the root disk and makes it the root folder. It does nothing if the disk is mounted already. After an
// error the machine is unusable. Calls must not be concurrent.
func (s *System) MountRoot() error {
	if s.isRootMounted.Load() {
		return nil
	}
	if err := s.rootDriver.bind(); err != nil {
		return err
	}
	if err := mountRoot(s.rootDevice); err != nil {
		return err
	}
	if err := switchRoot(); err != nil {
		return err
	}
	s.isRootMounted.Store(true)
	return attachAll(rootMounts[:])
}

// RootDevice returns the path of the block device of the root file system, or an empty string while it is not mounted.
func (s *System) RootDevice() string {
	if !s.isRootMounted.Load() {
		return ""
	}
	return s.rootDevice
}

// raiseLoopback brings the interface lo up. The kernel then adds its addresses.
func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}
