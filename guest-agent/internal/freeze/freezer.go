// Package freeze makes the root file system stand still for a moment, so that the host can take a consistent snapshot of
// the disk below a running machine. A machine must never stay frozen because its host died, so it thaws by itself.
package freeze

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
	"sandbar/guest-agent/internal/fault"
)

// maxTimeout bounds how long a machine may stand still for a host that does not come back.
const maxTimeout = time.Minute

const (
	// quickFlush is what a flush takes after which little has become dirty meanwhile: the freeze itself flushes the rest,
	// with all writers waiting.
	quickFlush = 20 * time.Millisecond
	maxFlushes = 4
)

var (
	errFrozen    = fault.New(fault.Conflict, "the root file system is frozen already")
	errNotFrozen = fault.New(fault.Conflict, "the root file system is not frozen: the time ran out, or a program of the machine thawed it")
)

// fileSystem is the kernel's part: an open file system.
type fileSystem interface {
	flush() error
	freeze() error // unix.EBUSY: it is frozen
	thaw() error   // unix.EINVAL: it is not
	close()
}

// Freezer freezes one file system, for one caller at a time.
type Freezer struct {
	gate *Gate
	open func() (fileSystem, error)

	mu     sync.Mutex
	frozen fileSystem // nil: it is not
	timer  *time.Timer
}

// New returns the freezer of the root file system. The gate is shut while that is frozen.
func New(gate *Gate) *Freezer { return &Freezer{gate: gate, open: openRoot} }

// ParseTimeout reads the body of a request to freeze: after how long the machine thaws by itself.
func ParseTimeout(body []byte) (time.Duration, error) {
	var request struct {
		TimeoutMs int64 `json:"timeout_ms"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return 0, fault.New(fault.Validation, "the body is not a request to freeze: "+err.Error())
	}
	timeout := time.Duration(request.TimeoutMs) * time.Millisecond
	if request.TimeoutMs < 1 || request.TimeoutMs > maxTimeout.Milliseconds() {
		return 0, fault.New(fault.Validation, "timeout_ms is not within 1 and 60000")
	}
	return timeout, nil
}

// Freeze writes what is dirty and then stops all writing, until Thaw or for the time-out. Nothing is frozen on an error,
// nor for a caller that has gone meanwhile: nobody would thaw it.
func (f *Freezer) Freeze(ctx context.Context, timeout time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen != nil {
		return errFrozen
	}
	root, err := f.open()
	if err != nil {
		return err
	}
	if err := f.stop(ctx, root); err != nil {
		root.close()
		return err
	}
	f.frozen = root
	f.timer = time.AfterFunc(timeout, func() { f.expire(root) })
	return nil
}

// stop freezes root, and shuts the gate before.
func (f *Freezer) stop(ctx context.Context, root fileSystem) error {
	for range maxFlushes {
		begin := time.Now()
		if err := root.flush(); err != nil {
			return err
		}
		if time.Since(begin) < quickFlush {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f.gate.shut()
	err := root.freeze()
	if err != nil {
		f.gate.open()
	}
	if err == unix.EBUSY {
		return errFrozen
	}
	return os.NewSyscallError("FIFREEZE", err)
}

// Thaw lets the writing go on. The error is a conflict if it went on before.
func (f *Freezer) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen == nil {
		return errNotFrozen
	}
	return f.thaw()
}

// Release thaws what is frozen, for a machine that ends or becomes another.
func (f *Freezer) Release() { _ = f.Thaw() }

func (f *Freezer) expire(root fileSystem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen != root {
		return
	}
	console.Log("the host did not thaw the root file system in time")
	if err := f.thaw(); err != nil {
		console.Log("thaw: ", err.Error())
	}
}

func (f *Freezer) thaw() error {
	f.timer.Stop()
	err := f.frozen.thaw()
	f.gate.open()
	f.frozen.close()
	f.frozen = nil
	if err == unix.EINVAL {
		return errNotFrozen
	}
	return os.NewSyscallError("FITHAW", err)
}
