// Opens, reads and writes a virtio-serial port. While no host is connected, a read of the port returns 0 bytes, and a
// level-triggered poll would report a hang-up all the time. Go's poller is edge-triggered, so Read treats 0 bytes as
// "no data yet" and sleeps until the port changes. (A blocking read would work too. But it occupies the only processor
// of a small machine until the Go runtime notices, and that takes milliseconds when the kernel's timers are coarse.)

package channel

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxWrite is how many bytes the kernel's driver takes in one write.
const maxWrite = 32 << 10

var errNoPort = errors.New("no such virtio-serial port")

// Port is an open virtio-serial port.
type Port struct {
	file *os.File
	raw  syscall.RawConn
}

// OpenPort opens the virtio-serial port with the given name, and waits up to patience until it exists.
func OpenPort(name string, patience time.Duration) (*Port, error) {
	deadline := time.Now().Add(patience)
	for {
		device, err := findPort("/sys/class/virtio-ports", name)
		if err == nil {
			return openDevice(filepath.Join("/dev", device))
		}
		if time.Now().After(deadline) {
			return nil, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func findPort(class, name string) (device string, err error) {
	ports, err := os.ReadDir(class)
	if err != nil {
		return "", err
	}
	for _, port := range ports {
		content, err := os.ReadFile(filepath.Join(class, port.Name(), "name"))
		if err == nil && strings.TrimSpace(string(content)) == name {
			return port.Name(), nil
		}
	}
	return "", errNoPort
}

func openDevice(path string) (*Port, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return newPort(os.NewFile(uintptr(fd), path))
}

func newPort(file *os.File) (*Port, error) {
	if err := file.SetDeadline(time.Time{}); err != nil {
		return nil, err // the Go poller does not support the file, so every wait would be a busy loop
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Port{file: file, raw: raw}, nil
}

// Read waits until the host has sent bytes, also when the host disconnects and connects again meanwhile.
func (p *Port) Read(b []byte) (n int, err error) {
	failed := p.raw.Read(func(fd uintptr) bool {
		n, err = retry(unix.Read, int(fd), b)
		return n > 0 || err != nil && err != unix.EAGAIN
	})
	return n, errors.Join(failed, err)
}

// Write sends at most maxWrite bytes of b and returns how many it has sent. It waits while no host is connected.
func (p *Port) Write(b []byte) (n int, err error) {
	b = b[:min(len(b), maxWrite)]
	failed := p.raw.Write(func(fd uintptr) bool {
		n, err = retry(unix.Write, int(fd), b)
		return err != unix.EAGAIN
	})
	return n, errors.Join(failed, err)
}

func retry(call func(int, []byte) (int, error), fd int, b []byte) (int, error) {
	for {
		n, err := call(fd, b)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
