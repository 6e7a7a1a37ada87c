package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const (
	machineA = "0195a1b2-c3d4-7890-abcd-ef0123456789"
	machineB = "0295a1b2-c3d4-7890-abcd-ef0123456789"
)

func at(slot int, path string) map[string]any { return map[string]any{"slot": slot, "path": path} }

// check runs a shell command in the machine and compares its output, without spaces at both ends, with want.
func (h *host) check(command, want string) {
	h.t.Helper()
	got := h.sh(fmt.Sprint("check-", time.Now().UnixNano()), command)
	if strings.TrimSpace(string(got.stdout)) != want {
		h.t.Errorf("%s: %s, want %q", command, got, want)
	}
}

// background starts a shell command in the background, which outlives its job, and returns when it has been started.
func (h *host) background(command string) {
	h.t.Helper()
	h.check(command+" >/dev/null 2>&1 & echo started", "started")
}

func TestMachineMountsAndGivesBackVolumes(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	h.expect(200, "PUT", "/identity", identityOf(machineA))
	q := m.monitor(t)
	path := makeVolume(t)
	for round := range 5 {
		begin := time.Now()
		q.plug(round, path)
		h.expect(204, "PUT", "/mounts/v", at(round, "/mnt/v"))
		mounted := time.Since(begin)
		h.expect(204, "PUT", "/mounts/v", at(round, "/mnt/v"))
		h.check(fmt.Sprintf("echo %d >> /mnt/v/rounds; wc -l < /mnt/v/rounds", round), fmt.Sprint(round+1))
		begin = time.Now()
		h.expect(204, "DELETE", "/mounts/v", nil)
		t.Logf("round %d: mounted in %v, unmounted in %v", round, mounted, time.Since(begin))
		h.check("ls /mnt/v /sys/block | grep -c 'sd\\|rounds'", "0")
		q.unplug(round)
	}
	h.expect(204, "DELETE", "/mounts/v", nil)

	q.plug(3, path)
	h.expect(204, "PUT", "/mounts/v", at(3, "/data/deep/er"))
	h.check("stat -c '%a %U' /data/deep", "755 root")
	h.expect(409, "PUT", "/mounts/v", at(3, "/data/other"))
	h.expect(409, "PUT", "/mounts/w", at(3, "/data/other"))
	h.check("umount /data/deep/er; ls /data/deep/er; sh -c 'exit 0'", "")
	h.expect(204, "PUT", "/mounts/v", at(3, "/data/deep/er"))
	h.check("wc -l < /data/deep/er/rounds", "5")
	h.expect(202, "POST", "/poweroff", nil)
	awaitEnd(t, m)
	if out, err := exec.Command("dumpe2fs", "-h", path).CombinedOutput(); err != nil || strings.Contains(string(out), "needs_recovery") {
		t.Errorf("the volume is not clean after a power-off: %s", out)
	}
}

func TestMachineRefusesImpossibleMounts(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	h.expect(200, "PUT", "/identity", identityOf(machineA))
	q := m.monitor(t)
	path, damaged := makeVolume(t), makeVolume(t)
	if err := os.WriteFile(damaged, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(damaged, 1<<30); err != nil {
		t.Fatal(err)
	}
	q.plug(0, path)
	q.plug(1, damaged)
	h.check("mkdir -p /mnt/taken /mnt/above/below; mount -t tmpfs x /mnt/taken; mount -t tmpfs x /mnt/above/below; echo > /mnt/file; echo", "")
	for name, c := range map[string]struct {
		slot int
		path string
		want string
	}{
		"a file":            {0, "/mnt/file", "not a directory"},
		"below a file":      {0, "/mnt/file/x", "not a directory"},
		"a mount point":     {0, "/mnt/taken", "another file system is mounted at /mnt/taken"},
		"above a mount":     {0, "/mnt/above", "mounted below /mnt/above, at /mnt/above/below"},
		"no file system":    {1, "/mnt/damaged", "no ext4 file system, or one that is damaged"},
		"kernel's own path": {0, "/proc/x", "cannot be made"},
	} {
		if got := h.expect(409, "PUT", "/mounts/v", at(c.slot, c.path)); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, body := range []any{at(8, "/mnt/v"), at(-1, "/mnt/v"), at(0, "mnt"), at(0, "/"), at(0, "/a/../b"), map[string]any{"path": "/mnt/v"}} {
		h.expect(400, "PUT", "/mounts/v", body)
	}
	h.check("grep -c /dev/sd /proc/mounts", "0")
	h.expect(204, "PUT", "/mounts/v", at(0, "/mnt/v"))
}

func TestMachineNamesTheUsersOfABusyVolume(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	h.expect(200, "PUT", "/identity", identityOf(machineA))
	q := m.monitor(t)
	q.plug(0, makeVolume(t))
	h.expect(204, "PUT", "/mounts/v", at(0, "/mnt/v"))
	h.check("mkdir /mnt/v/in /mnt/bound; cp /bin/sleep /mnt/v/napper; echo > /mnt/v/log", "")
	for name, c := range map[string]struct{ hold, isHeld, free, want string }{
		"open file":      {"sleep 1000 3>/mnt/v/log", "pgrep -x sleep", "pkill -x sleep", "sleep (pid PID): open file /mnt/v/log"},
		"working folder": {"cd /mnt/v/in; sleep 1000", "pgrep -x sleep", "pkill -x sleep", "sleep (pid PID): working folder"},
		"mapped file":    {"/mnt/v/napper 1000", "pgrep -x napper", "pkill -x napper", "napper (pid PID): mapped file"},
		"bind mount":     {"mount --bind /mnt/v/in /mnt/bound", "grep /mnt/bound /proc/mounts", "umount /mnt/bound", "another mount at /mnt/bound"},
		"mount on it":    {"mount -t tmpfs x /mnt/v/in", "grep /mnt/v/in /proc/mounts", "umount /mnt/v/in", "another mount at /mnt/v/in"},
		"mount over it":  {"mount -t tmpfs x /mnt/v", "grep 'x /mnt/v ' /proc/mounts", "umount /mnt/v", "another mount at /mnt/v"},
		"mount space":    {"unshare -m sleep 1000", "pgrep -x sleep", "pkill -x sleep", "sleep (pid PID): another mount at /mnt/v"},
		"lazily unmounted": {"sleep 1000 3>/mnt/v/log & sleep 0.1; umount -l /mnt/v", "grep /mnt/v /proc/mounts || pgrep -x sleep", "pkill -x sleep",
			"sleep (pid PID): open file"},
	} {
		h.background(c.hold)
		holder := ""
		eventually(t, name, func() bool {
			holder = strings.TrimSpace(string(h.sh(fmt.Sprint("held", time.Now().UnixNano()), c.isHeld).stdout))
			return holder != ""
		})
		begin := time.Now()
		got := h.expect(409, "DELETE", "/mounts/v", nil)
		if !strings.Contains(got, "the volume is busy: "+strings.ReplaceAll(c.want, "PID", holder)) {
			t.Errorf("%s: %s", name, got)
		}
		t.Logf("%s: refused in %v", name, time.Since(begin))
		h.check(c.free+"; cat /mnt/v/kept 2>/dev/null", "")
		eventually(t, name+" is over", func() bool {
			return len(h.sh(fmt.Sprint("free", time.Now().UnixNano()), c.isHeld).stdout) == 0
		})
		h.expect(204, "PUT", "/mounts/v", at(0, "/mnt/v"))
		h.check("grep -c '/dev/sda /mnt/v ' /proc/mounts; test -e /mnt/v/napper && echo here", "1\nhere")
	}
	h.background("for i in 1 2 3 4 5 6 7; do sleep 1000 3>/mnt/v/log & done; wait")
	eventually(t, "seven holders", func() bool {
		return strings.TrimSpace(string(h.sh(fmt.Sprint("n", time.Now().UnixNano()), "pgrep -cx sleep").stdout)) == "7"
	})
	got := h.expect(409, "DELETE", "/mounts/v", nil)
	if strings.Count(got, "(pid ") != 5 || !strings.Contains(got, ", and others") {
		t.Error(got)
	}
	h.check("pkill -x sleep; sleep 0.2", "")
	h.expect(204, "DELETE", "/mounts/v", nil)
}

// awaitEnd waits until the machine has powered off.
func awaitEnd(t *testing.T, m *machine) {
	t.Helper()
	select {
	case <-m.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the machine does not power off")
	}
}
