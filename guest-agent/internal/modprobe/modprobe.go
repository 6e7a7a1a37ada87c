// Package modprobe decides whether the kernel may run the disk's modprobe. When the kernel misses a module, it runs the
// program /sbin/modprobe as root. On the disk of a user, that is a program of the user, which must not run while the
// machine has no identity.
package modprobe

import (
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// setting is the file that names the program. When it is empty, the kernel runs no program.
const setting = "/proc/sys/kernel/modprobe"

// Loader remembers the program that Forbid has removed from the kernel's setting.
type Loader struct {
	setting string
	mu      sync.Mutex
	file    *os.File // the open setting; nil before the first Forbid
	program string   // empty: Allow has nothing to restore
}

// New returns the loader of this machine.
func New() *Loader { return &Loader{setting: setting} }

// Pretended returns a loader that never changes the setting of the computer that it runs on, for tests.
func Pretended() *Loader { return &Loader{setting: os.DevNull} }

// Forbid makes the kernel run no program for a missing module. A kernel without modules has no such setting, and Forbid
// does nothing.
func (l *Loader) Forbid() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	program, err := l.read()
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if program == "" {
		return nil // forbidden already, by this Loader or by the owner of the machine
	}
	if err := l.write(""); err != nil {
		return err
	}
	l.program = program
	return nil
}

// Allow restores the setting that Forbid has changed.
func (l *Loader) Allow() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.program == "" {
		return nil
	}
	if err := l.write(l.program); err != nil {
		return err
	}
	l.program = ""
	return nil
}

// WarmUp forbids the program again if it is forbidden, to warm up the system call of Allow.
func (l *Loader) WarmUp() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.program == "" {
		return nil
	}
	return l.write("")
}

// read returns the present setting. It opens the file when it is called for the first time.
func (l *Loader) read() (program string, err error) {
	if l.file == nil {
		if l.file, err = os.OpenFile(l.setting, os.O_RDWR, 0); err != nil {
			return "", err
		}
	}
	content := make([]byte, unix.PathMax)
	n, err := l.file.ReadAt(content, 0)
	if err != nil && err != io.EOF {
		return "", err
	}
	line, _, _ := strings.Cut(string(content[:n]), "\n")
	return line, nil
}

// write ends the value with a line break, because the kernel ignores a write of no bytes. It keeps the file open,
// because under emulation an open is much slower than the write.
func (l *Loader) write(program string) error {
	_, err := unix.Pwrite(int(l.file.Fd()), []byte(program+"\n"), 0)
	return os.NewSyscallError("write "+l.setting, err)
}
