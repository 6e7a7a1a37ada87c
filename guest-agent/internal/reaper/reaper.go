// Package reaper owns every wait4 of the process. PID 1 inherits the orphans of the whole machine, so it has
// to wait for any child; if the code that starts a job waited too, one of them would steal the other's status.
package reaper

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper collects the status of every child and hands those of registered processes to their owner.
type Reaper struct {
	mu    sync.Mutex // held over fork and register, and over wait and dispatch: a status never precedes its owner
	owned map[int]chan syscall.WaitStatus
}

// New returns a reaper that runs for the life of the process.
func New() *Reaper {
	r := &Reaper{owned: make(map[int]chan syscall.WaitStatus)}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		r.collect()
		for range children {
			r.collect()
		}
	}()
	return r
}

// Start runs fork, which returns the pid of a new child, and returns that pid with the channel on which its
// exit status will arrive.
func (r *Reaper) Start(fork func() (int, error)) (int, <-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return 0, nil, err
	}
	status := make(chan syscall.WaitStatus, 1)
	r.owned[pid] = status
	return pid, status, nil
}

// Signal sends sig to a child of Start that has not been collected yet. Its pid cannot have been reused,
// because only this reaper could have released it.
func (r *Reaper) Signal(pid int, sig syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.owned[pid]; !ok {
		return syscall.ESRCH
	}
	return syscall.Kill(pid, sig)
}

// HasChildren reports whether any child, dead or alive, is left. For PID 1 no children means that no other
// process of user space exists.
func HasChildren() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != unix.ECHILD
}

// collect takes every status that is there now: one SIGCHLD may stand for many children.
func (r *Reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if owner, ok := r.owned[pid]; ok {
			delete(r.owned, pid)
			owner <- status
		}
	}
}
