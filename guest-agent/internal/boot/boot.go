// Package boot sets up the machine after the kernel has started the agent: modules, root disk, mounts and loopback. It
// runs no program of the image, because an image need not contain any.
package boot

import (
	"os"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
	"sandbar/guest-agent/internal/modprobe"
)

// System is the result of the boot that other parts of the agent need.
type System struct {
	RootDevice string

	spareModules [][]byte
}

// Run does the whole boot. After an error the machine is unusable. Before the disk is mounted it forbids the kernel to
// run the disk's modprobe; the identity allows it again.
func Run(loader *modprobe.Loader) (System, error) {
	if err := attachAll(kernelMounts[:]); err != nil {
		return System{}, err
	}
	if err := console.Attach(); err != nil {
		console.Log("console: ", err.Error())
	}
	settings, err := readSettings()
	if err != nil {
		return System{}, err
	}
	settings.spareModules = loadModules("/modules.list")
	if err := loader.Forbid(); err != nil {
		return System{}, err
	}
	if err := mountRoot(settings.RootDevice); err != nil {
		return System{}, err
	}
	if err := switchRoot(); err != nil {
		return System{}, err
	}
	if err := attachAll(systemMounts[:]); err != nil {
		return System{}, err
	}
	linkDevices()
	enableControllers("/sys/fs/cgroup")
	if err := raiseLoopback(); err != nil {
		console.Log("loopback: ", err.Error())
	}
	return settings, nil
}

func readSettings() (System, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return System{}, err
	}
	return System{RootDevice: rootDevice(string(line))}, nil
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
