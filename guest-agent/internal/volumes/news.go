package volumes

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kernelEvents is the netlink multicast group for device events from the kernel (group 2 is for those from udev).
const kernelEvents = 1

// listen returns a socket that receives the kernel's device events (NETLINK_KOBJECT_UEVENT).
func listen() (*os.File, error) {
	const kind = unix.SOCK_DGRAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	fd, err := unix.Socket(unix.AF_NETLINK, kind, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelEvents}); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "uevent"), nil
}

// heard waits up to recheck for a device event and reports whether one came. It does not look at the event: events are
// rare, so the caller can look for its disk after each one.
func heard(ctx context.Context, news *os.File) bool {
	if err := news.SetReadDeadline(time.Now().Add(recheck)); err != nil {
		return false
	}
	stop := context.AfterFunc(ctx, func() { _ = news.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var event [4096]byte
	_, err := news.Read(event[:])
	return err == nil
}
