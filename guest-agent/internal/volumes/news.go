package volumes

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kernelEvents is the multicast group in which the kernel itself says what becomes of devices.
const kernelEvents = 1

// listen returns a socket on which the kernel tells of devices (NETLINK_KOBJECT_UEVENT).
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

// heard waits for an event and reports whether one came in time. Which one does not matter: there are few.
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
