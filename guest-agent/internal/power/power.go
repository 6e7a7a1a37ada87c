// Package power ends the machine. The processes get a chance to leave, the file systems are clean afterwards, and
// nothing that hangs can stop it.
package power

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
	"sandbar/guest-agent/internal/mounttable"
	"sandbar/guest-agent/internal/reaper"
)

// Time that processes get after TERM and after KILL.
const (
	termGrace = 3 * time.Second
	killGrace = time.Second
)

var once sync.Once

// Off ends all processes, runs release (which gives up the agent's own open files), makes the file systems clean
// and powers the machine off. It does not return.
func Off(release func()) {
	once.Do(func() {
		console.Log("powering off")
		endProcesses()
		release()
		cleanFilesystems()
		halt()
	})
	select {} // the call that came first is at it
}

// Fail powers off at once, with the reason on the console for the host to find.
func Fail(reason error) {
	console.Log("fatal: ", reason.Error())
	halt()
}

func halt() {
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	console.Log("power off: ", err.Error())
	os.Exit(1) // the kernel panics without PID 1, which ends the machine too
}

func endProcesses() {
	_ = syscall.Kill(-1, syscall.SIGTERM) // everything but this process; fails if there is nothing
	_ = syscall.Kill(-1, syscall.SIGCONT) // a stopped process cannot act on TERM
	if awaitNone(termGrace) {
		return
	}
	_ = syscall.Kill(-1, syscall.SIGKILL)
	awaitNone(killGrace)
}

func awaitNone(patience time.Duration) bool {
	for deadline := time.Now().Add(patience); reaper.HasChildren(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// cleanFilesystems unmounts what is on a disk, last mounted first, and leaves the root read-only.
func cleanFilesystems() {
	unix.Sync()
	mounts, err := mounttable.Own()
	if err != nil {
		console.Log(err.Error())
	}
	targets := diskMounts(mounts)
	for i := len(targets) - 1; i >= 0; i-- {
		if err := unix.Unmount(targets[i], 0); err != nil {
			console.Log("unmount ", targets[i], ": ", err.Error())
			_ = unix.Mount("", targets[i], "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		console.Log("remount /: ", err.Error())
	}
}

// diskMounts lists the mount points of block devices other than the root.
func diskMounts(mounts []mounttable.Mount) []string {
	var targets []string
	for _, m := range mounts {
		if m.Path != "/" && strings.HasPrefix(m.Source, "/dev/") {
			targets = append(targets, m.Path)
		}
	}
	return targets
}
