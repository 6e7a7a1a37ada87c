package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandbar/guest-agent/internal/frames"
	"sandbar/guest-agent/internal/identity"
	"sandbar/guest-agent/internal/jobs"
)

// eventually waits up to 20 s until holds returns true, else it fails the test.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func (h *host) status(id string) jobs.Status {
	h.t.Helper()
	var status jobs.Status
	if err := json.Unmarshal([]byte(h.expect(200, "GET", "/jobs/"+id, nil)), &status); err != nil {
		h.t.Fatal(err)
	}
	return status
}

func TestJobOutcomes(t *testing.T) {
	h := startAgent(t).connect(t)
	for id, c := range map[string]struct {
		request any
		want    string
	}{
		"true":      {map[string]any{"argv": []string{"true"}}, "exited 0 null||"},
		"streams":   {map[string]any{"command": "echo a; echo b >&2; exit 3"}, "exited 3 null|a|b"},
		"signal":    {map[string]any{"command": "kill -9 $$"}, "exited null SIGKILL||"},
		"stdin":     {map[string]any{"argv": []string{"cat"}, "stdin": []byte("exact")}, "exited 0 null|exact|"},
		"no-stdin":  {map[string]any{"argv": []string{"cat"}}, "exited 0 null||"},
		"env":       {map[string]any{"command": "echo $A $USER $PATH", "env": map[string]string{"A": "1 2", "PATH": "/bin"}}, "exited 0 null|1 2 root /bin|"},
		"cwd":       {map[string]any{"command": "pwd", "cwd": "/usr"}, "exited 0 null|/usr|"},
		"missing":   {map[string]any{"argv": []string{"no-such-program"}}, "exited 127 null||sandbar: no-such-program: not found"},
		"missing2":  {map[string]any{"argv": []string{"/no/such"}}, "exited 127 null||sandbar: /no/such: not found"},
		"directory": {map[string]any{"argv": []string{"/etc"}}, "exited 126 null||sandbar: /etc: permission denied"},
		"notexec":   {map[string]any{"argv": []string{"/etc/passwd"}}, "exited 126 null||sandbar: /etc/passwd: permission denied"},
		"nobody":    {map[string]any{"command": "id -un; echo x > /dev/stderr", "user": "nobody"}, "exited 0 null|nobody|x"},
		"uidgid":    {map[string]any{"command": "id -u; id -g", "user": "12345:77"}, "exited 0 null|12345\n77|"},
		"session":   {map[string]any{"command": "read -r _ _ _ _ _ session _ < /proc/$$/stat; [ $session = $$ ] && echo own"}, "exited 0 null|own|"},
		"timeout":   {map[string]any{"command": "sleep 100", "timeout_sec": 0.05}, "timed_out null SIGTERM||"},
	} {
		t.Run(id, func(t *testing.T) {
			result := h.run(id, c.request)
			if result.String() != c.want || result.code != 201 {
				t.Errorf("%d %s, want %s", result.code, result, c.want)
			}
		})
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	h := startAgent(t).connect(t)
	for _, body := range []string{
		`{}`, `{"command":"a","argv":["b"]}`, `[]`, `{"argv":[]}`, `{"command":"a\u0000"}`, `{"command":"a","cwd":"x"}`,
		`{"command":"a","cwd":"/no/such"}`, `{"command":"a","user":"no-such"}`, `{"command":"a","env":{"A=":"b"}}`,
		`{"command":"a","timeout_sec":-1}`, `{"command":"a","stdin":"?"}`, `{"command":"` + strings.Repeat("a", 1<<20),
	} {
		if got := h.expect(400, "PUT", "/jobs/x", body); !strings.Contains(got, `"validation_error"`) {
			t.Error(got)
		}
	}
	h.expect(400, "PUT", "/jobs/x.y", map[string]any{"command": "a"})
	h.expect(404, "GET", "/jobs/x", nil)
	h.expect(404, "GET", "/jobs/x/stream", nil)
	h.expect(404, "POST", "/jobs/x/cancel", nil)
	h.expect(404, "DELETE", "/jobs/x", nil)
	if got := h.expect(200, "GET", "/jobs", nil); got != `{"jobs":[]}` {
		t.Error(got)
	}
}

func TestARepeatedPutReturnsTheStreamOfTheSameJob(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	marker := filepath.Join(t.TempDir(), "runs")
	request := map[string]any{"command": "echo run >> " + marker + "; echo out"}
	first, second := h.run("j", request), a.connect(t).run("j", request)
	if first.code != 201 || second.code != 200 || first.String() != second.String() {
		t.Errorf("%d %s, then %d %s", first.code, first, second.code, second)
	}
	if runs, _ := os.ReadFile(marker); string(runs) != "run\n" {
		t.Errorf("ran %q", runs)
	}
}

func TestAcknowledgeAndDelete(t *testing.T) {
	h := startAgent(t).connect(t)
	h.sh("j", "printf hello")
	h.expect(400, "POST", "/jobs/j/ack", `{"stdout":6,"stderr":0}`)
	h.expect(204, "POST", "/jobs/j/ack", `{"stdout":3,"stderr":0}`)
	h.expect(409, "GET", "/jobs/j/stream", nil)
	h.expect(409, "GET", "/jobs/j/stream?stdout=2", nil)
	h.expect(400, "GET", "/jobs/j/stream?stdout=9", nil)
	h.expect(400, "GET", "/jobs/j/stream?stdout=-1", nil)
	var rest outcome
	if err := rest.read(h.send(t.Context(), "GET", "/jobs/j/stream?stdout=3", nil), 3, 0); err != nil {
		t.Fatal(err)
	}
	if rest.String() != "exited 0 null|lo|" {
		t.Error(rest.String())
	}
	h.expect(204, "DELETE", "/jobs/j", nil)
	h.expect(404, "GET", "/jobs/j", nil)
	if again := h.sh("j", "printf again"); again.String() != "exited 0 null|again|" {
		t.Error(again.String())
	}
}

func TestRunningJobIsListedAndNotDeleted(t *testing.T) {
	h := startAgent(t).connect(t)
	response := h.send(context.Background(), "PUT", "/jobs/j", map[string]any{"command": "sleep 100"})
	if status := h.status("j"); status.State != jobs.Running || status.FinishedUnixMs != nil || status.StartedUnixMs == 0 {
		t.Errorf("%+v", status)
	}
	h.expect(409, "DELETE", "/jobs/j", nil)
	h.expect(202, "POST", "/jobs/j/cancel", nil)
	result := new(outcome)
	if err := result.read(response, 0, 0); err != nil || result.String() != "canceled null SIGTERM||" {
		t.Errorf("%s, %v", result, err)
	}
	if got := h.expect(202, "POST", "/jobs/j/cancel", nil); !strings.Contains(got, `"canceled"`) {
		t.Error(got)
	}
}

// A cancel must also end daemons with a session of their own, and processes in control groups that the job has made.
func TestCancelReachesEveryDescendant(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	command := `setsid sh -c 'setsid sleep 1001 & exit' & (setsid sleep 1002 &) ; mkdir "$C"/job-1/inner; ` +
		`sleep 1003 & echo $! > "$C"/job-1/inner/cgroup.procs; wait; echo ready; exec sleep 1004`
	response := h.send(context.Background(), "PUT", "/jobs/j",
		map[string]any{"command": command, "env": map[string]string{"C": a.cgroups}})
	group := filepath.Join(a.cgroups, "job-1")
	eventually(t, "all run", func() bool {
		outer, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		inner, _ := os.ReadFile(filepath.Join(group, "inner/cgroup.procs"))
		return bytes.Count(outer, []byte("\n")) == 3 && bytes.Count(inner, []byte("\n")) == 1
	})
	h.expect(202, "POST", "/jobs/j/cancel", nil)
	result := new(outcome)
	if err := result.read(response, 0, 0); err != nil || result.status.State != jobs.Canceled {
		t.Errorf("%s, %v", result, err)
	}
	eventually(t, "the job's group goes", func() bool {
		_, err := os.Stat(group)
		return os.IsNotExist(err)
	})
}

func TestCancelKillsWhatIgnoresTERM(t *testing.T) {
	h := startAgent(t).connect(t)
	response := h.send(context.Background(), "PUT", "/jobs/j",
		map[string]any{"command": "trap '' TERM; echo ready; while :; do sleep 100; done"})
	eventually(t, "ready", func() bool { return h.status("j").StdoutBytes > 0 })
	begin := time.Now()
	h.expect(202, "POST", "/jobs/j/cancel", nil)
	result := new(outcome)
	if err := result.read(response, 0, 0); err != nil || result.String() != "canceled null SIGKILL|ready|" {
		t.Errorf("%s, %v", result, err)
	}
	if took := time.Since(begin); took < 4900*time.Millisecond || took > 8*time.Second {
		t.Errorf("took %v", took)
	}
}

// A process that a job leaves in the background goes on and can still write to its pipes. The job ends without it.
func TestBackgroundProcessOutlivesItsJob(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	marker := filepath.Join(t.TempDir(), "alive")
	result := h.sh("j", `(while ! [ -e `+marker+`.stop ]; do echo noise || exit; done; touch `+marker+`) & sleep 0.1; echo main`)
	if result.status.State != jobs.Exited || !strings.Contains(string(result.stdout), "main\n") {
		t.Errorf("%s, %d bytes", result.status.State, len(result.stdout))
	}
	eventually(t, "the job's group goes", func() bool {
		_, err := os.Stat(filepath.Join(a.cgroups, "job-1"))
		return os.IsNotExist(err)
	})
	if procs, _ := os.ReadFile(filepath.Join(a.cgroups, "background/cgroup.procs")); len(procs) == 0 {
		t.Error("nothing in the background group")
	}
	h.expect(204, "DELETE", "/jobs/j", nil)
	if err := os.WriteFile(marker+".stop", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the background process ends by itself", func() bool {
		_, err := os.Stat(marker)
		return err == nil
	})
}

func TestOutputIsExactAcrossReconnects(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	const command = "seq 1 2000000"
	want := sha256.New()
	for i := 1; i <= 2000000; i++ {
		fmt.Fprintln(want, i)
	}
	got := sha256.New()
	ctx, cancel := context.WithCancel(context.Background())
	response := h.send(ctx, "PUT", "/jobs/j", map[string]any{"command": command})
	var offset int64
	for round := 0; ; round++ {
		for range 30 {
			frame, err := response.next()
			if err != nil || frame.kind == frames.KindStdout && frame.offset != offset {
				t.Fatalf("kind %d at %d, want %d, %v", frame.kind, frame.offset, offset, err)
			}
			if frame.kind == frames.KindEnd {
				cancel()
				if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
					t.Error("other bytes")
				}
				if round < 2 {
					t.Errorf("only %d reconnects", round)
				}
				return
			}
			got.Write(frame.payload)
			offset += int64(len(frame.payload))
		}
		if round%2 == 0 {
			h.expect(204, "POST", "/jobs/j/ack", map[string]int64{"stdout": offset})
		}
		cancel() // breaks the stream in the middle; the next line breaks the session too
		h = a.connect(t)
		ctx, cancel = context.WithCancel(context.Background())
		response = h.send(ctx, "GET", fmt.Sprintf("/jobs/j/stream?stdout=%d", offset), nil)
	}
}

func TestAbsentReaderNeverBlocksTheCommand(t *testing.T) {
	a := startAgent(t)
	ctx, cancel := context.WithCancel(context.Background())
	a.connect(t).send(ctx, "PUT", "/jobs/j",
		map[string]any{"command": "head -c 30000000 /dev/zero; echo end >&2", "max_output_bytes": 20000000})
	cancel()
	h := a.connect(t)
	eventually(t, "the job ends", func() bool { return h.status("j").State == jobs.Exited })
	if status := h.status("j"); status.StdoutBytes != 20000000 || status.StderrBytes != 4 || !status.Truncated {
		t.Errorf("%+v", status)
	}
}

func TestLargeStdin(t *testing.T) {
	h := startAgent(t).connect(t)
	stdin := bytes.Repeat([]byte("0123456789abcdef"), 80_000)
	result := h.run("j", map[string]any{"argv": []string{"cat"}, "stdin": stdin})
	if !bytes.Equal(result.stdout, stdin) {
		t.Errorf("%d bytes of %d", len(result.stdout), len(stdin))
	}
	unread := h.run("k", map[string]any{"argv": []string{"true"}, "stdin": stdin})
	if unread.String() != "exited 0 null||" {
		t.Error(unread)
	}
}

func TestManyJobsAtOnce(t *testing.T) {
	h := startAgent(t).connect(t)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			result := h.sh(fmt.Sprint("j", i), fmt.Sprintf("echo %d; exit %d", i, i))
			if want := fmt.Sprintf("exited %d null|%d|", i, i); result.String() != want {
				t.Errorf("%s, want %s", result, want)
			}
		}()
	}
	wg.Wait()
	if list := h.expect(200, "GET", "/jobs", nil); strings.Count(list, `"exited"`) != 64 {
		t.Error("not all listed")
	}
}

// A power-off kills the processes of all jobs. The agent must not report these jobs as exited: for the host they are
// lost.
func TestJobsOfAnEndingMachineDoNotEnd(t *testing.T) {
	agent := startAgent(t)
	h := agent.connect(t)
	h.send(t.Context(), "PUT", "/jobs/doomed", map[string]any{"command": "exec sleep 1000"})
	procs := filepath.Join(agent.cgroups, "job-1", "cgroup.procs")
	pid := func() int {
		content, _ := os.ReadFile(procs)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(content)))
		return pid
	}
	eventually(t, "it runs", func() bool { return pid() > 0 })
	agent.registry.Abandon()
	if err := syscall.Kill(pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its process is gone", func() bool { return pid() == 0 })
	time.Sleep(50 * time.Millisecond) // long enough for a wrong report to arrive
	if state := h.status("doomed").State; state != jobs.Running {
		t.Errorf("told to have %s", state)
	}
}

func TestAMachineWithoutIdentityRunsOnlyTheWarmUpJobs(t *testing.T) {
	h := startAgentAs(t, identity.Assumed("")).connect(t)
	h.expect(409, "PUT", "/jobs/other", map[string]any{"command": "true"})
	for _, id := range []string{"warm-up", "warm-up-shell"} {
		if got := h.run(id, map[string]any{"command": "echo mine", "user": "nobody"}); got.String() != "exited 0 null|warm-up|" {
			t.Error(got)
		}
		h.expect(204, "POST", "/jobs/"+id+"/ack", map[string]int64{"stdout": 8})
		h.expect(204, "DELETE", "/jobs/"+id, nil)
	}
	if got := h.expect(200, "GET", "/jobs", nil); got != `{"jobs":[]}` {
		t.Error(got)
	}
	if got := h.expect(200, "GET", "/healthz", nil); !strings.Contains(got, `"boot_id":""`) {
		t.Error("a boot id is made up by being read:", got)
	}
}

func TestAMachineWithAnIdentityRunsAnyJob(t *testing.T) {
	h := startAgent(t).connect(t)
	if got := h.sh("warm-up", "echo mine"); got.String() != "exited 0 null|mine|" {
		t.Error(got)
	}
	if got := h.expect(200, "GET", "/healthz", nil); strings.Contains(got, `"boot_id":""`) {
		t.Error(got)
	}
}

// To make a control group is slow under emulation, so a job gets one that was made before its request.
func TestAJobRunsInAGroupThatWasMadeBefore(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	for i := range 3 {
		result := h.sh(fmt.Sprint("j", i), "cat /proc/self/cgroup")
		if want := fmt.Sprintf("/job-%d\n", i+1); !strings.HasSuffix(string(result.stdout), want) {
			t.Errorf("%s, want %q", result, want)
		}
		eventually(t, "the only group is that of the next job", func() bool {
			found, _ := filepath.Glob(filepath.Join(a.cgroups, "job-*"))
			return len(found) == 1 && filepath.Base(found[0]) == fmt.Sprint("job-", i+2)
		})
	}
}
