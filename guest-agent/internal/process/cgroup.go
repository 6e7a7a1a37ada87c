// Each job and each terminal has its own control group. A process can leave a session or a process group, by forking
// twice or becoming a daemon, but it stays in its control group, so all processes of a job can be found and killed.

package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxPasses is how often the processes of a group are listed again, to catch processes that were forked between two
// listings.
const maxPasses = 50

// Groups is the directory in which groups are made.
type Groups struct {
	directory  string
	background string // control group of the processes that ended jobs and terminals left behind
}

// MakeGroups makes the directory, which must be on a cgroup2 file system, and the background group in it. Both may exist.
func MakeGroups(directory string) (Groups, error) {
	background := filepath.Join(directory, "background")
	return Groups{directory, background}, os.MkdirAll(background, 0o755)
}

// Group is the control group of a job or a terminal.
type Group struct{ path, background string }

// Make makes an empty group and opens it, so that a process can be started in it. The name is still taken if the
// machine let go of an earlier terminal with the same id, or if a program made such a group. Then a number is added to
// the name.
func (g Groups) Make(name string) (Group, *os.File, error) {
	taken := filepath.Join(g.directory, name)
	path := taken
	err := os.Mkdir(path, 0o755)
	for n := 1; os.IsExist(err); n++ {
		path = taken + "." + strconv.Itoa(n)
		err = os.Mkdir(path, 0o755)
	}
	if err != nil {
		return Group{}, nil, err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = os.Remove(path)
		return Group{}, nil, err
	}
	return Group{path, g.background}, os.NewFile(uintptr(fd), path), nil
}

// processes returns the processes in the group and in groups that a program made inside it.
func (g Group) processes() []int {
	var pids []int
	_ = filepath.WalkDir(g.path, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil // a group that went away has no processes
		}
		content, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for line := range strings.Lines(string(content)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// Signal sends sig once to every process of the group, including processes that are forked meanwhile. It returns the
// processes that it signaled.
func (g Group) Signal(sig syscall.Signal) map[int]bool {
	reached := make(map[int]bool)
	for range maxPasses {
		before := len(reached)
		for _, pid := range g.processes() {
			if !reached[pid] {
				reached[pid] = true
				_ = syscall.Kill(pid, sig) // it may have ended since
			}
		}
		if len(reached) == before {
			break
		}
	}
	return reached
}

// Kill ends every process of the group at once.
func (g Group) Kill() {
	if os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	g.Signal(syscall.SIGKILL) // a kernel before 5.14
}

// AwaitEmpty waits until no living process is left in the group, at most for patience. A negative patience means
// without limit. It returns whether the group is empty.
func (g Group) AwaitEmpty(patience time.Duration) bool {
	fd, err := unix.Open(filepath.Join(g.path, "cgroup.events"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // the group itself is gone
	}
	defer unix.Close(fd)
	deadline := time.Now().Add(patience)
	for {
		var content [256]byte
		n, err := unix.Pread(fd, content[:], 0)
		if err != nil || !strings.Contains(string(content[:max(n, 0)]), "populated 1") {
			return true
		}
		wait := -1
		if patience >= 0 {
			left := time.Until(deadline)
			if left <= 0 {
				return false
			}
			wait = int(left.Milliseconds()) + 1
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, wait)
	}
}

// Dissolve removes the group after its main process has ended. It moves the processes that are left to the background
// group. If some keep escaping by forking, the group is removed when the last of them has ended.
func (g Group) Dissolve() {
	if g.Remove() {
		return
	}
	target := filepath.Join(g.background, "cgroup.procs")
	for range maxPasses {
		for _, pid := range g.processes() {
			_ = os.WriteFile(target, strconv.AppendInt(nil, int64(pid), 10), 0) // it may have ended since
		}
		if g.Remove() {
			return
		}
	}
	go func() {
		g.AwaitEmpty(-1)
		g.Remove()
	}()
}

// killGrace is the time that processes have to exit after a signal before they get KILL.
const killGrace = 5 * time.Second

// Owner sends signals to child processes. It must be safe to signal a child that has already exited.
type Owner interface {
	Signal(pid int, sig syscall.Signal) error
}

// Terminate ends every process of the group, and also its main process pid, which can leave the group if it runs as
// root: first with the signals, and after 5 s with KILL. It returns the exit status of the main process, which it takes
// from exit.
func (g Group) Terminate(owner Owner, pid int, exit <-chan syscall.WaitStatus, signals ...syscall.Signal) syscall.WaitStatus {
	deadline := time.Now().Add(killGrace)
	for _, sig := range signals {
		if reached := g.Signal(sig); !reached[pid] {
			_ = owner.Signal(pid, sig) // it may have ended since
		}
	}
	if g.AwaitEmpty(killGrace) {
		select {
		case status := <-exit:
			return status
		case <-time.After(time.Until(deadline)):
		}
	}
	g.Kill()
	_ = owner.Signal(pid, syscall.SIGKILL) // it may have ended since
	g.AwaitEmpty(-1)
	return <-exit
}

// Remove deletes the group and the groups inside it, and returns whether that succeeded.
func (g Group) Remove() bool {
	err := unix.Rmdir(g.path)
	if err == unix.EBUSY {
		entries, _ := os.ReadDir(g.path)
		for _, entry := range entries {
			if entry.IsDir() {
				Group{path: filepath.Join(g.path, entry.Name())}.Remove()
			}
		}
		err = unix.Rmdir(g.path)
	}
	return err == nil || err == unix.ENOENT
}
