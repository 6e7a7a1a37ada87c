// Connects a guest stream to a port of the machine.

package ports

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/fault"
)

const (
	// connectLimit is how long one attempt may take. The addresses are those of this machine, so only a program that does
	// not accept its connections makes an attempt last.
	connectLimit = 5 * time.Second
	bufferBytes  = 32 * 1024
)

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferBytes); return &b }}

func connect(ctx context.Context, params []byte, open func(head any) (calls.Conn, error)) (any, error) {
	var request struct {
		Port uint16 `json:"port"`
	}
	if err := json.Unmarshal(params, &request); err != nil || request.Port == 0 {
		return nil, fault.New(fault.Validation, "port must be an integer from 1 to 65535")
	}
	socket, err := dialPort(ctx, request.Port)
	if err != nil {
		return nil, err
	}
	defer func() { _ = socket.Close() }()
	conn, err := open(struct{}{})
	if err != nil {
		return nil, err
	}
	return relay(ctx, socket, conn)
}

// dialPort connects to the loopback address, and else to the addresses on which the port is open.
func dialPort(ctx context.Context, port uint16) (*os.File, error) {
	loopback := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	socket, err := dial(loopback)
	if err == nil {
		return socket, nil
	}
	for _, l := range readListeners(ctx) {
		if l.address.Port() != port {
			continue
		}
		address := l.address.Addr().Unmap()
		if address.IsUnspecified() {
			address = netip.IPv6Loopback() // IPv4 was refused above, so this socket takes IPv6 only
		}
		if socket, err := dial(netip.AddrPortFrom(address, port)); err == nil {
			return socket, nil
		}
	}
	if errors.Is(err, unix.ETIMEDOUT) {
		return nil, fault.New(fault.PortNotOpen, "the program on this port accepts no connections")
	}
	return nil, notOpen(ctx, port)
}

// dial opens a TCP connection. It does not use package net, which would add 1 MB to the agent.
func dial(to netip.AddrPort) (*os.File, error) {
	family := unix.AF_INET6
	var address unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		family = unix.AF_INET
		address = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := await(fd, unix.Connect(fd, address)); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	return os.NewFile(uintptr(fd), "tcp"), nil
}

// await waits for the end of a connect that returned err.
func await(fd int, err error) error {
	if err == nil || !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	deadline := time.Now().Add(connectLimit)
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(time.Until(deadline).Milliseconds())+1)
		if errors.Is(err, unix.EINTR) && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			return err
		}
		if ready == 0 {
			return unix.ETIMEDOUT
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}

// relay copies bytes both ways until the program has ended its direction. When the host ends its direction, only that
// direction ends, because the program may answer after it has read everything. When the stream is cut, the program gets
// a reset, which it cannot mistake for the end of the data.
func relay(ctx context.Context, socket *os.File, conn calls.Conn) (any, error) {
	stop := context.AfterFunc(ctx, func() { reset(socket) })
	defer stop()
	go func() {
		// An error here is ignored: either the stream was cut, or the program takes no more bytes but may still send
		// some.
		if copyAll(socket, conn) == nil {
			shutdownWrites(socket)
		}
	}()
	if err := copyAll(conn, socket); err != nil {
		return nil, fault.New(fault.Conflict, "the connection to the program broke: "+err.Error())
	}
	return struct{}{}, nil
}

func copyAll(to io.Writer, from io.Reader) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	// Hide other methods, so that io.CopyBuffer uses the buffer.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, *buffer)
	return err
}

func shutdownWrites(socket *os.File) {
	control(socket, func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) })
}

func reset(socket *os.File) {
	control(socket, func(fd int) {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	_ = socket.Close()
}

// control runs f with the descriptor of the socket, if that is open.
func control(socket *os.File, f func(fd int)) {
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
