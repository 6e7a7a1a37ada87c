package freeze

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stopPatience is how long processes may take to stop. A process inside a system call stops only when the call returns.
const stopPatience = time.Second

// processes freezes all control groups directly below the root group: those of the jobs, and those that programs of the
// machine have made. The agent itself is in the root group, so it is not frozen.
type processes struct{ cgroups string }

func (p processes) flush() error { return nil }
func (p processes) close()       {}

func (p processes) freeze() error {
	groups, err := p.set("1")
	deadline := time.Now().Add(stopPatience)
	for _, group := range groups {
		if err == nil {
			err = awaitFrozen(group, deadline)
		}
	}
	if err != nil {
		_, _ = p.set("0")
	}
	return err
}

func (p processes) thaw() error {
	_, err := p.set("0")
	return err
}

// set freezes ("1") or thaws ("0") every group, and returns the paths of all groups.
func (p processes) set(frozen string) (groups []string, failure error) {
	files, _ := filepath.Glob(p.cgroups + "/*/cgroup.freeze") // the pattern is well formed
	for _, file := range files {
		err := os.WriteFile(file, []byte(frozen), 0)
		if os.IsNotExist(err) {
			continue // the group was removed, so it has no processes
		}
		if err != nil {
			failure = err
		}
		groups = append(groups, filepath.Dir(file))
	}
	return groups, failure
}

// awaitFrozen waits until all processes of the group are frozen. It returns an error after the deadline.
func awaitFrozen(group string, deadline time.Time) error {
	fd, err := unix.Open(group+"/cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // the group was removed
	}
	defer unix.Close(fd)
	for {
		var content [256]byte
		n, err := unix.Pread(fd, content[:], 0)
		if err != nil || strings.Contains(string(content[:max(n, 0)]), "frozen 1") {
			return nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("processes of %s do not stop", filepath.Base(group))
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, int(left.Milliseconds())+1)
	}
}
