// Package freeze makes the root file system, or all processes, stand still for a moment, so that the host can take a
// snapshot of a running machine: a consistent one of its disk, or one of its memory in which nothing of the user's runs on
// before the machine that is made of it is itself. Nothing must stay frozen because the host died, so it thaws by itself.
package freeze

import (
	"context"
	"encoding/json"
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

// subject is what stands still: the kernel's part.
type subject interface {
	flush() error
	freeze() error // unix.EBUSY: it is frozen
	thaw() error   // unix.EINVAL: it is not
	close()
}

// Freezer freezes one subject, for one caller at a time.
type Freezer struct {
	gate *Gate
	name string
	open func() (subject, error)

	mu     sync.Mutex
	frozen subject // nil: it is not
	isKept bool    // the time-out does not count any more
	timer  *time.Timer
}

// New returns the freezer of the root file system. The gate is shut while that is frozen.
func New(gate *Gate) *Freezer {
	return &Freezer{gate: gate, name: "the root file system", open: openRoot}
}

// NewOfProcesses returns the freezer of all processes but this one. The gate is shut while they are frozen: one that was
// started then would stop before its program begins, and whoever starts it with it.
func NewOfProcesses(gate *Gate) *Freezer {
	return &Freezer{gate: gate, name: "the machine's processes", open: func() (subject, error) { return processes{"/sys/fs/cgroup"}, nil }}
}

func (f *Freezer) alreadyFrozen() error {
	return fault.New(fault.Conflict, "already frozen: "+f.name)
}

func (f *Freezer) notFrozen() error {
	return fault.New(fault.Conflict, "not frozen: "+f.name+"; the time ran out, or a program of the machine thawed it")
}

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
		return f.alreadyFrozen()
	}
	target, err := f.open()
	if err != nil {
		return err
	}
	if err := f.stop(ctx, target); err != nil {
		target.close()
		return err
	}
	f.frozen = target
	f.timer = time.AfterFunc(timeout, func() { f.expire(target) })
	return nil
}

// stop freezes the target, and shuts the gate before.
func (f *Freezer) stop(ctx context.Context, target subject) error {
	for range maxFlushes {
		begin := time.Now()
		if err := target.flush(); err != nil {
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
	err := target.freeze()
	if err != nil {
		f.gate.open()
	}
	if err == unix.EBUSY {
		return f.alreadyFrozen()
	}
	return err
}

// Thaw lets the writing go on. The error is a conflict if it went on before.
func (f *Freezer) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen == nil {
		return f.notFrozen()
	}
	return f.thaw()
}

// Keep makes what is frozen stay so until Thaw, whatever the time-out was. The error is a conflict if it is not frozen any
// more: it may have run on for any time, and nothing is changed.
func (f *Freezer) Keep() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen == nil {
		return f.notFrozen()
	}
	f.timer.Stop()
	f.isKept = true // for a timer that fired already and waits for the lock
	return nil
}

// Release thaws what is frozen, for a machine that ends or becomes another.
func (f *Freezer) Release() { _ = f.Thaw() }

func (f *Freezer) expire(target subject) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen != target || f.isKept {
		return
	}
	console.Log("the host did not thaw in time: ", f.name)
	if err := f.thaw(); err != nil {
		console.Log("thaw: ", err.Error())
	}
}

func (f *Freezer) thaw() error {
	f.timer.Stop()
	err := f.frozen.thaw()
	f.gate.open()
	f.frozen.close()
	f.frozen, f.isKept = nil, false
	if err == unix.EINVAL {
		return f.notFrozen()
	}
	return err
}
