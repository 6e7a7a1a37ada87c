package freeze

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

// fake is a subject that records the calls of the freezer.
type fake struct {
	mu      sync.Mutex
	done    []string
	frozen  bool
	onFlush func()
	refuses error
}

func (f *fake) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, what)
}

func (f *fake) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.done)
}

func (f *fake) flush() error {
	f.note("flush")
	if f.onFlush != nil {
		f.onFlush()
	}
	return nil
}

func (f *fake) freeze() error {
	f.note("freeze")
	if f.refuses != nil {
		return f.refuses
	}
	f.frozen = true
	return nil
}

func (f *fake) thaw() error {
	f.note("thaw")
	if !f.frozen {
		return unix.EINVAL
	}
	f.frozen = false
	return nil
}

func (f *fake) close() { f.note("close") }

func newFreezer(f *fake) *Freezer {
	return &Freezer{gate: new(Gate), open: func() (subject, error) { return f, nil }}
}

func isConflict(err error) bool {
	var known *fault.Error
	return errors.As(err, &known) && known.Code == fault.Conflict
}

func TestDirtyDataIsWrittenBeforeTheFreeze(t *testing.T) {
	f := new(fake)
	freezer := newFreezer(f)
	if err := freezer.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if freezer.gate.Enter() {
		t.Error("the gate of a frozen file system is open")
	}
	if err := freezer.Thaw(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"flush", "freeze", "thaw", "close"}; !slices.Equal(f.done, want) {
		t.Errorf("%q", f.done)
	}
	if !freezer.gate.Enter() {
		t.Error("the gate stays shut")
	}
}

func TestAFlushThatTookLongIsRepeated(t *testing.T) {
	f := new(fake)
	f.onFlush = func() {
		if len(f.done) < 3 {
			time.Sleep(quickFlush)
		}
	}
	if err := newFreezer(f).Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if len(f.done) < 4 || f.done[2] != "flush" || f.done[len(f.done)-1] != "freeze" {
		t.Errorf("%q", f.done)
	}
}

func TestASecondFreezeIsRefused(t *testing.T) {
	freezer := newFreezer(new(fake))
	if err := freezer.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := freezer.Freeze(t.Context(), time.Minute); !isConflict(err) {
		t.Errorf("%v", err)
	}
	if err := freezer.Thaw(); err != nil {
		t.Error(err)
	}
	if err := freezer.Thaw(); !isConflict(err) {
		t.Errorf("a second thaw: %v", err)
	}
}

func TestAFileSystemThatAnotherFrozeIsRefusedAndTheGateStaysOpen(t *testing.T) {
	freezer := newFreezer(&fake{refuses: unix.EBUSY})
	if err := freezer.Freeze(t.Context(), time.Minute); !isConflict(err) {
		t.Errorf("%v", err)
	}
	if !freezer.gate.Enter() {
		t.Error("the gate is shut")
	}
}

func TestAFreezeEndsWithItsTimeout(t *testing.T) {
	freezer := newFreezer(new(fake))
	if err := freezer.Freeze(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := freezer.gate.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := freezer.Thaw(); !isConflict(err) {
		t.Errorf("thaw after the time ran out: %v", err)
	}
	if err := freezer.Freeze(t.Context(), time.Minute); err != nil {
		t.Errorf("the next freeze: %v", err)
	}
}

func TestAKeptFreezeDoesNotEndWithItsTimeout(t *testing.T) {
	freezer := newFreezer(new(fake))
	if err := freezer.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := freezer.Keep(); err != nil {
		t.Fatal(err)
	}
	freezer.expire(freezer.frozen) // as if the timer had fired just before Keep
	if freezer.gate.Enter() {
		t.Fatal("thawed by the timer")
	}
	if err := freezer.Thaw(); err != nil {
		t.Error(err)
	}
	if err := freezer.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	freezer.expire(freezer.frozen)
	if !freezer.gate.Enter() {
		t.Error("the next freeze is kept as well")
	}
}

func TestAFreezeThatTimedOutCannotBeKept(t *testing.T) {
	f := new(fake)
	freezer := newFreezer(f)
	if err := freezer.Keep(); !isConflict(err) {
		t.Errorf("never frozen: %v", err)
	}
	if err := freezer.Freeze(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := freezer.gate.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := freezer.Keep(); !isConflict(err) {
		t.Errorf("after the time ran out: %v", err)
	}
	if want := []string{"flush", "freeze", "thaw", "close"}; !slices.Equal(f.all(), want) {
		t.Errorf("%q", f.all())
	}
}

func TestAThawByAProgramOfTheMachineIsNoticed(t *testing.T) {
	f := new(fake)
	freezer := newFreezer(f)
	if err := freezer.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	f.frozen = false
	if err := freezer.Thaw(); !isConflict(err) {
		t.Errorf("%v", err)
	}
	if !freezer.gate.Enter() {
		t.Error("the gate stays shut")
	}
}

func TestNothingIsFrozenWhenTheCallerGoesAwayDuringTheFlush(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{onFlush: cancel}
	if err := newFreezer(f).Freeze(ctx, time.Minute); err == nil {
		t.Error("frozen for nobody")
	}
	if want := []string{"flush", "close"}; !slices.Equal(f.done, want) {
		t.Errorf("%q", f.done)
	}
}

func TestTheFreezeWaitsForWritersInside(t *testing.T) {
	f := new(fake)
	freezer := newFreezer(f)
	if !freezer.gate.Enter() {
		t.Fatal("shut")
	}
	frozen := make(chan error)
	go func() { frozen <- freezer.Freeze(t.Context(), time.Minute) }()
	for freezer.gate.Enter() { // until the freezer has shut the gate
		freezer.gate.Leave()
		time.Sleep(time.Millisecond)
	}
	if done := f.all(); slices.Contains(done, "freeze") {
		t.Errorf("frozen under a writer: %q", done)
	}
	freezer.gate.Leave()
	if err := <-frozen; err != nil {
		t.Error(err)
	}
}

func TestLaterRunsItsFunctionsAfterTheThaw(t *testing.T) {
	freezer := newFreezer(new(fake))
	done := 0
	freezer.gate.Later(func() { done++ })
	if err := freezer.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	freezer.gate.Later(func() { done++ })
	if done != 1 {
		t.Errorf("%d done while frozen", done)
	}
	freezer.Release()
	if done != 2 {
		t.Errorf("%d done after the thaw", done)
	}
}

func TestTimeout(t *testing.T) {
	for _, body := range []string{``, `{}`, `{"timeout_ms": 0}`, `{"timeout_ms": -1}`, `{"timeout_ms": 60001}`, `{"timeout_ms": "1"}`} {
		if timeout, err := ParseTimeout([]byte(body)); err == nil {
			t.Errorf("%s: %v", body, timeout)
		}
	}
	if timeout, err := ParseTimeout([]byte(`{"timeout_ms": 900}`)); err != nil || timeout != 900*time.Millisecond {
		t.Errorf("%v, %v", timeout, err)
	}
}
