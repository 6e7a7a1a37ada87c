package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A memory snapshot may be taken while a job sends much output to a host that no longer reads. In a machine made from
// that snapshot, the agent must list no jobs, and the processes of the old job must go on undisturbed.
func TestProcessesOfReleasedJobsGoOnAndTheirOutputIsDropped(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	alive := filepath.Join(t.TempDir(), "alive")
	begin := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Each round writes more than the buffers, the port and the pipes can hold, and then a line to a file as a sign of
	// life.
	command := fmt.Sprintf("trap 'exit 1' PIPE; while :; do head -c 9000000 /dev/zero; head -c 9000000 /dev/zero >&2; echo x >> %s; done", alive)
	response := h.send(ctx, "PUT", "/jobs/chatty", map[string]any{"command": command, "timeout_sec": 2, "max_output_bytes": 1 << 40})
	if _, err := response.output(); err != nil {
		t.Fatal(err)
	}
	a.registry.LetGo()

	h = a.connect(t)
	if got := h.expect(200, "GET", "/jobs", nil); got != `{"jobs":[]}` {
		t.Error(got)
	}
	h.expect(404, "GET", "/jobs/chatty", nil)
	h.expect(404, "POST", "/jobs/chatty/ack", offsets{})
	size := func() int {
		content, _ := os.ReadFile(alive)
		return len(content)
	}
	eventually(t, "its time-out passes", func() bool { return time.Since(begin) > 2500*time.Millisecond })
	before := size()
	eventually(t, "the process goes on", func() bool { return size() > before+4 })
	if got := h.sh("chatty", "cat /proc/self/cgroup"); !strings.HasSuffix(string(got.stdout), "/job-2\n") {
		t.Errorf("a job with the id of one that was let go: %s", got)
	}
	if entries, _ := filepath.Glob("/proc/self/fd/*"); len(entries) > 0 {
		for _, entry := range entries {
			if target, _ := os.Readlink(entry); strings.Contains(target, t.Name()) && strings.Contains(target, "/spill/") {
				t.Errorf("the agent keeps %s", target)
			}
		}
	}
}

func TestTheGroupOfAJobThatWasLetGoGoesWithItsLastProcess(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	end := filepath.Join(t.TempDir(), "end")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.send(ctx, "PUT", "/jobs/j", map[string]any{"command": "while ! test -e " + end + "; do sleep 0.01; done"})
	a.registry.LetGo()
	group := filepath.Join(a.cgroups, "job-1")
	if _, err := os.Stat(group); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the group goes", func() bool {
		_, err := os.Stat(group)
		return os.IsNotExist(err)
	})
}

func TestAStreamEndsWhenItsJobIsLetGo(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	response := h.send(t.Context(), "PUT", "/jobs/j", map[string]any{"command": "echo on; exec sleep 1000"})
	if _, err := response.output(); err != nil {
		t.Fatal(err)
	}
	a.registry.LetGo()
	if frame, err := response.next(); err != errBroken {
		t.Errorf("a frame of kind %d, %v", frame.kind, err)
	}
}

// The agent has output of jobs in spill files, so it would write or free blocks of the root file system. While that is
// frozen, the start of a job must wait for the thaw, and no other request may hang.
func TestAFrozenDiskBlocksNobody(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	for i := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		h.send(ctx, "PUT", fmt.Sprint("/jobs/j", i), map[string]any{"command": "head -c 5000000 /dev/zero; exec cat /dev/zero"})
		cancel()
		eventually(t, "output is on the disk", func() bool { return h.status(fmt.Sprint("j", i)).StdoutBytes > 5_000_000 })
	}
	h.expect(204, "POST", "/freeze", map[string]any{"timeout_ms": 60000})
	h.expect(409, "POST", "/freeze", map[string]any{"timeout_ms": 60000})
	h.expect(204, "POST", "/jobs/j0/ack", offsets{5_000_000, 0})
	h.expect(202, "POST", "/jobs/j1/cancel", nil)
	h.expect(409, "DELETE", "/jobs/j1", nil) // still running: its pipes have output that finds no room while frozen
	size := h.status("j2").StdoutBytes
	h.expect(204, "POST", "/jobs/j2/ack", offsets{size, 0})
	eventually(t, "output goes on in memory", func() bool { return h.status("j2").StdoutBytes > size })

	started := make(chan string)
	go func() { started <- h.sh("late", "echo late").String() }()
	select {
	case <-started:
		t.Error("a job was started while the disk was frozen")
	case <-time.After(200 * time.Millisecond): // long enough for a job that does not wait for the thaw
	}
	h.expect(204, "POST", "/thaw", nil)
	if got := <-started; got != "exited 0 null|late|" {
		t.Errorf("a job that was started while the disk was frozen: %s", got)
	}
	h.expect(409, "POST", "/thaw", nil)
	eventually(t, "the canceled job ends", func() bool { return h.status("j1").State == "canceled" })
	h.expect(204, "DELETE", "/jobs/j1", nil)
	size = h.status("j2").StdoutBytes
	eventually(t, "output goes on", func() bool { return h.status("j2").StdoutBytes > size+3_000_000 })
}

type offsets struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}
