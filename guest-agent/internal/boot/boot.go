// Package boot brings a machine from the kernel's first process to a usable system, without a single program of
// the image: the image may be anything.
package boot

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/channel"
	"sandbar/guest-agent/internal/console"
)

// System is what later parts of the agent need to know about the boot.
type System struct {
	RootDevice string
	Token      channel.Token

	spareModules [][]byte
}

// Run does the whole boot. An error means that the machine is of no use.
func Run() (System, error) {
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
	found := parseCommandLine(string(line))
	if found.token == "" {
		return System{}, errors.New("no sandbar.channel on the kernel command line")
	}
	token, err := channel.ParseToken(found.token)
	if err != nil {
		return System{}, err
	}
	return System{RootDevice: found.root, Token: token}, nil
}

// raiseLoopback sets the interface up; the kernel then gives it its addresses.
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
