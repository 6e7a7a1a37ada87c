// Package reaper makes all wait4 calls of the agent. As PID 1, the agent inherits all orphans of the machine, so it
// must wait for any child. If the code that starts jobs waited for its own children too, either could take the exit
// status that the other one needs.
package reaper

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper collects the exit status of every child. It passes the status of a child of Start to the caller of Start.
type Reaper struct {
	mu    sync.Mutex // held from fork to registration, and while collecting, so that each status finds its owner
	owned map[int]chan syscall.WaitStatus
}

// New returns a reaper that runs until the process ends.
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

// Start calls fork, which must start a child and return its pid. Start returns that pid and a channel that receives the
// exit status of the child.
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

// Signal sends sig to a child of Start. It returns ESRCH when the status of the child was already collected. Before
// that, the kernel cannot give the pid to another process, so Signal never reaches a wrong process.
func (r *Reaper) Signal(pid int, sig syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.owned[pid]; !ok {
		return syscall.ESRCH
	}
	return syscall.Kill(pid, sig)
}

// HasChildren reports whether the process has children, alive or dead. If PID 1 has none, no other user process exists.
func HasChildren() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != unix.ECHILD
}

// collect collects all exit statuses that are available, because one SIGCHLD may stand for many ended children.
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
