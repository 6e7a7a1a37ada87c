// Each job has its own control group. A process can leave a session or a process group, by forking twice or becoming a
// daemon, but it stays in its control group, so all processes of a job can be found and killed.

package jobs

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

type cgroup struct{ path string }

// makeCgroup makes an empty group and opens it, so that a process can be started in it. The name is still taken if the
// machine let go of an earlier job with the same id. Then a number is added to the name.
func makeCgroup(path string) (cgroup, *os.File, error) {
	taken := path
	err := os.Mkdir(path, 0o755)
	for n := 1; os.IsExist(err); n++ {
		path = taken + "." + strconv.Itoa(n)
		err = os.Mkdir(path, 0o755)
	}
	if err != nil {
		return cgroup{}, nil, err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = os.Remove(path)
		return cgroup{}, nil, err
	}
	return cgroup{path}, os.NewFile(uintptr(fd), path), nil
}

// processes returns the processes in the group and in groups that the job made inside it.
func (g cgroup) processes() []int {
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

// signal sends sig once to every process of the group, including processes that are forked meanwhile. It returns the
// processes that it signaled.
func (g cgroup) signal(sig syscall.Signal) map[int]bool {
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

// kill ends every process of the group at once.
func (g cgroup) kill() {
	if os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	g.signal(syscall.SIGKILL) // a kernel before 5.14
}

// awaitEmpty waits until no living process is left in the group, at most for patience. A negative patience means
// without limit. It returns whether the group is empty.
func (g cgroup) awaitEmpty(patience time.Duration) bool {
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

// dissolve removes the group after its job has ended. It moves processes that the job left behind to the background
// group. If some keep escaping by forking, the group is removed when the last of them has ended.
func (g cgroup) dissolve(background string) {
	if g.remove() {
		return
	}
	target := filepath.Join(background, "cgroup.procs")
	for range maxPasses {
		for _, pid := range g.processes() {
			_ = os.WriteFile(target, strconv.AppendInt(nil, int64(pid), 10), 0) // it may have ended since
		}
		if g.remove() {
			return
		}
	}
	go func() {
		g.awaitEmpty(-1)
		g.remove()
	}()
}

// remove deletes the group and the groups inside it, and returns whether that succeeded.
func (g cgroup) remove() bool {
	err := unix.Rmdir(g.path)
	if err == unix.EBUSY {
		entries, _ := os.ReadDir(g.path)
		for _, entry := range entries {
			if entry.IsDir() {
				cgroup{filepath.Join(g.path, entry.Name())}.remove()
			}
		}
		err = unix.Rmdir(g.path)
	}
	return err == nil || err == unix.ENOENT
}
