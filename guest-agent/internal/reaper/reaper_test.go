package reaper

import (
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// All tests share one reaper, because two reapers in one process would take each other's exit statuses.
var only = New()

func spawn(r *Reaper, script string) (int, <-chan syscall.WaitStatus, error) {
	return r.Start(func() (int, error) {
		return syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{})
	})
}

func TestEveryOwnerGetsItsOwnStatus(t *testing.T) {
	r := only
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, status, err := spawn(r, "exit "+string(rune('0'+i%8)))
			if err != nil {
				t.Error(err)
				return
			}
			if got := (<-status).ExitStatus(); got != i%8 {
				t.Errorf("exit status %d, want %d", got, i%8)
			}
		}()
	}
	wg.Wait()
}

func TestOrphansAreReaped(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skip(err)
	}
	r := only
	_, status, err := spawn(r, "(sleep 0.05 &) ; (true &) ; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	if got := (<-status).ExitStatus(); got != 3 {
		t.Fatalf("exit status %d, want 3", got)
	}
	for deadline := time.Now().Add(5 * time.Second); HasChildren(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("an orphan is left")
		}
	}
}

func TestSignalReachesOnlyUncollectedChildren(t *testing.T) {
	r := only
	pid, status, err := spawn(r, "exec sleep 100")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Signal(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := (<-status).Signal(); got != syscall.SIGTERM {
		t.Fatalf("ended by %v, want SIGTERM", got)
	}
	if err := r.Signal(pid, syscall.SIGTERM); err != syscall.ESRCH {
		t.Fatalf("signal after the end: %v, want ESRCH", err)
	}
	if err := r.Signal(os.Getpid(), 0); err != syscall.ESRCH {
		t.Fatalf("signal to a stranger: %v, want ESRCH", err)
	}
}
