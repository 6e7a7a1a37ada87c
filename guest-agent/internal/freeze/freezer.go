// Package freeze stops the root file system, or all processes, for a moment, so that the host can take a snapshot of a
// running machine. A frozen file system makes a disk snapshot consistent. With frozen processes, no program of the user
// runs in a machine made from a memory snapshot before that machine has its new identity. Each freeze has a time limit,
// so that the machine does not stay frozen when the host dies.
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

// maxTimeout is the longest time limit of a freeze, for the case that the host never thaws.
const maxTimeout = time.Minute

const (
	// quickFlush: after a flush that took less than this, little new data can be dirty. The freeze itself flushes that
	// rest while all writers wait, so slower flushes are repeated, up to maxFlushes in total.
	quickFlush = 20 * time.Millisecond
	maxFlushes = 4
)

// subject is the file system or the processes that a Freezer freezes.
type subject interface {
	flush() error
	freeze() error // unix.EBUSY: it is already frozen
	thaw() error   // unix.EINVAL: it is not frozen
	close()
}

// Freezer freezes and thaws one subject. Calls may be concurrent.
type Freezer struct {
	gate *Gate
	name string
	open func() (subject, error)

	mu     sync.Mutex
	frozen subject // nil while nothing is frozen
	isKept bool    // Keep has disabled the time-out
	timer  *time.Timer
}

// New returns the freezer of the root file system. It shuts the gate while the file system is frozen.
func New(gate *Gate) *Freezer {
	return &Freezer{gate: gate, name: "the root file system", open: openRoot}
}

// NewOfProcesses returns the freezer of all processes except the agent. It shuts the gate while they are frozen, and
// the agent starts no process then. The kernel would freeze a new process before its exec, and the agent, which waits
// for that exec, would hang.
func NewOfProcesses(gate *Gate) *Freezer {
	return &Freezer{gate: gate, name: "the machine's processes", open: func() (subject, error) { return processes{"/sys/fs/cgroup"}, nil }}
}

func (f *Freezer) alreadyFrozen() error {
	return fault.New(fault.Conflict, "already frozen: "+f.name)
}

func (f *Freezer) notFrozen() error {
	return fault.New(fault.Conflict, "not frozen: "+f.name+"; the time ran out, or a program of the machine thawed it")
}

// ParseTimeout reads the body of a request to freeze and returns its time limit, 1 ms to 60 s.
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

// Freeze flushes and then freezes the subject, until Thaw or for at most timeout. The error is a conflict if it is
// already frozen. After an error nothing is frozen. If ctx ends during the flush, nothing is frozen either, because its
// caller has gone and would not thaw.
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

// stop flushes and freezes the target. It shuts the gate first, so that the agent itself does not use the frozen
// target.
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

// Thaw ends the freeze. The error is a conflict if nothing is frozen, or if the freeze had already ended.
func (f *Freezer) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen == nil {
		return f.notFrozen()
	}
	return f.thaw()
}

// Keep disables the time-out of the current freeze, so that only Thaw ends it. The error is a conflict if nothing is
// frozen, such as after the time-out.
func (f *Freezer) Keep() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen == nil {
		return f.notFrozen()
	}
	f.timer.Stop()
	f.isKept = true // for the case that the timer has already fired and expire waits for the lock
	return nil
}

// Release ends a freeze, if there is one, before the machine powers off or gets another identity.
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
