// Package modprobe decides whether the kernel may run the disk's modprobe. When the kernel misses a module, it runs the
// program /sbin/modprobe as root. On the disk of a user, that is a program of the user, which must not run while the
// machine has no identity.
package modprobe

import (
	"os"
	"strings"
	"sync"
)

// setting is the file that names the program. When it is empty, the kernel runs no program.
const setting = "/proc/sys/kernel/modprobe"

// Loader remembers the program that Forbid has removed from the kernel's setting.
type Loader struct {
	setting string
	mu      sync.Mutex
	program string // empty: Allow has nothing to restore
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
	content, err := os.ReadFile(l.setting)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	program := strings.TrimSuffix(string(content), "\n")
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

// write ends the value with a line break, because the kernel ignores a write of no bytes.
func (l *Loader) write(program string) error {
	return os.WriteFile(l.setting, []byte(program+"\n"), 0)
}
