// Package power powers the machine off. Processes get time to end, and file systems are unmounted cleanly. Every wait
// has a time limit, so that nothing that hangs can prevent the power-off.
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

// How long processes may take to end after TERM, and after KILL.
const (
	termGrace = 3 * time.Second
	killGrace = time.Second
)

var once sync.Once

// Off ends all processes, calls release (which closes the agent's own files), unmounts the file systems and powers the
// machine off. It does not return.
func Off(release func()) {
	once.Do(func() {
		console.Log("powering off")
		endProcesses()
		release()
		cleanFilesystems()
		halt()
	})
	select {} // another call of Off is already powering off
}

// Fail powers off at once and writes the reason to the console, where the host can read it.
func Fail(reason error) {
	console.Log("fatal: ", reason.Error())
	halt()
}

func halt() {
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	console.Log("power off: ", err.Error())
	os.Exit(1) // the kernel panics when PID 1 exits, and that ends the machine too
}

func endProcesses() {
	_ = syscall.Kill(-1, syscall.SIGTERM) // all processes except this one; fails if there are none
	_ = syscall.Kill(-1, syscall.SIGCONT) // a stopped process handles TERM only after CONT
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

// cleanFilesystems unmounts all file systems on disks, the last mounted first, and remounts the root read-only.
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

// diskMounts returns the mount points of all block devices except the root.
func diskMounts(mounts []mounttable.Mount) []string {
	var targets []string
	for _, m := range mounts {
		if m.Path != "/" && strings.HasPrefix(m.Source, "/dev/") {
			targets = append(targets, m.Path)
		}
	}
	return targets
}
