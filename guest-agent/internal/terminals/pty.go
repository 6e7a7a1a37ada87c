package terminals

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/process"
)

// pty is a pseudo-terminal. Programs use the inner side as their terminal; the agent reads and writes the outer side.
type pty struct {
	outer *os.File // in non-blocking mode
	raw   syscall.RawConn
	// inner stays open until the main process has ended. Without it, reads of the outer side would fail whenever no
	// program has the terminal open, for example while the program restarts itself.
	inner *os.File
}

// openPTY makes a pseudo-terminal of a size, which the account may open by its path.
func openPTY(who *process.Account, screen size) (*pty, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	p := &pty{outer: os.NewFile(uintptr(fd), "/dev/ptmx")}
	if err := p.prepare(who, screen); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *pty) prepare(who *process.Account, screen size) (err error) {
	if p.raw, err = p.outer.SyscallConn(); err != nil {
		return err
	}
	failure := p.raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil { // unlock the inner side
			return
		}
		// Opens the inner side without its path, because a program may have unmounted /dev/pts or hidden it.
		inner, _, number := unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if number != 0 {
			err = os.NewSyscallError("TIOCGPTPEER", number)
			return
		}
		p.inner = os.NewFile(inner, "terminal")
	})
	if err := errors.Join(failure, err); err != nil {
		return err
	}
	if err := p.inner.Chown(int(who.UID), -1); err != nil {
		return err
	}
	if err := p.enableUTF8(); err != nil {
		return err
	}
	return p.resize(screen)
}

// enableUTF8 makes the kernel erase whole characters instead of bytes while it edits a line.
func (p *pty) enableUTF8() error {
	settings, err := unix.IoctlGetTermios(int(p.inner.Fd()), unix.TCGETS)
	if err != nil {
		return os.NewSyscallError("TCGETS", err)
	}
	settings.Iflag |= unix.IUTF8
	return os.NewSyscallError("TCSETS", unix.IoctlSetTermios(int(p.inner.Fd()), unix.TCSETS, settings))
}

// resize sets the size of the screen. The kernel tells the programs in the foreground.
func (p *pty) resize(screen size) (err error) {
	failure := p.raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: screen.Cols, Row: screen.Rows})
	})
	return errors.Join(failure, err)
}

// descriptors returns the descriptors 0 to 2 of the main process.
func (p *pty) descriptors() []uintptr {
	fd := p.inner.Fd()
	return []uintptr{fd, fd, fd}
}

// session returns the attributes of a process that leads a session of its own on this terminal.
func (p *pty) session() syscall.SysProcAttr {
	return syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
}

// close hangs the terminal up: programs that still use it get HUP, and their reads and writes fail.
func (p *pty) close() error {
	err := p.outer.Close()
	if p.inner != nil {
		err = errors.Join(err, p.inner.Close())
	}
	return err
}

// write passes input to the programs. It waits while they do not read it, but not longer than ctx. Only one goroutine
// may write.
func (p *pty) write(ctx context.Context, data []byte) error {
	var n int
	var err error
	failure := p.raw.Control(func(fd uintptr) { n, err = unix.Write(int(fd), data) })
	if failure != nil {
		return failure
	}
	if n == len(data) {
		return nil
	}
	if err != nil && err != unix.EAGAIN && err != unix.EINTR {
		return err
	}
	return p.writeWhenRead(ctx, data[max(n, 0):])
}

func (p *pty) writeWhenRead(ctx context.Context, data []byte) error {
	if err := p.outer.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = p.outer.SetWriteDeadline(time.Unix(1, 0)) // fails only if the file is closed
		close(interrupted)
	})
	_, err := p.outer.Write(data)
	if !stop() {
		<-interrupted // so that it cannot interrupt the next write
	}
	return err
}
