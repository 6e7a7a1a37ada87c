package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMachineTerminals uses login shells of a real machine, and logs how long an echo takes and what unread output costs.
func TestMachineTerminals(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	h.expect(409, "POST", "/calls/terminals.open", map[string]any{"id": terminalID, "cols": 80, "rows": 24})
	h.expect(200, "PUT", "/identity", identityOf("0195a1b2-c3d4-7890-abcd-ef0123456789"))
	begin := time.Now()
	h.openTerminal("")
	s, _ := h.attach(0)
	s.readTo(t, "# ")
	t.Logf("prompt of the first login shell after %v", time.Since(begin))
	s.enter(t, "shopt -q login_shell && tty && stty size && stat -c '%U %G %a' $(tty) && echo $TERM $LANG $PWD && cat /proc/self/cgroup\r")
	got := s.readTo(t, "terminal-"+terminalID+"\r\n")
	if want := "/dev/pts/0\r\n24 80\r\nroot tty 620\r\nxterm-256color C.UTF-8 /root\r\n0::/sandbar/terminal-"; !strings.Contains(got, want) {
		t.Errorf("%q", got)
	}
	s.readTo(t, "# ")
	measure(t, "echo of a key in bash", 100, func(int) {
		s.enter(t, "x")
		s.readTo(t, "x")
	})
	s.enter(t, "\x15cat\r")
	s.readTo(t, "cat\r\n")
	measure(t, "echo of a key by the kernel", 100, func(int) {
		s.enter(t, "x")
		s.readTo(t, "x")
	})
	s.enter(t, "\x03")
	s.readTo(t, "# ")
	measureTerminalOutput(t, s)
	measureUnread(t, h, s)
	measureManyTerminals(t, h)
	begin = time.Now()
	h.expect(202, "POST", "/poweroff", nil)
	select {
	case <-m.ended:
		if took := time.Since(begin); took > 3*time.Second { // the time that processes get after TERM, which bash ignores
			t.Errorf("powered off in %v", took)
		}
		t.Logf("powered off with open shells in %v", time.Since(begin))
	case <-time.After(15 * time.Second):
		t.Error("the machine does not power off")
	}
}

// measureTerminalOutput logs how fast a terminal prints to a host that reads everything.
func measureTerminalOutput(t *testing.T, s *stream) {
	t.Helper()
	begin := time.Now()
	const size = 2_000_000
	s.enter(t, fmt.Sprintf("head -c %d /dev/zero | tr '\\0' Q; echo; echo do''ne\r", size))
	text := s.readTo(t, "done\r\n")
	if count := strings.Count(text, "Q") - 1; count != size {
		t.Errorf("%d bytes, want %d", count, size)
	}
	t.Logf("%d bytes of output in %v", size, time.Since(begin))
	s.readTo(t, "# ")
}

// measureUnread logs the processor time of the agent while a terminal that nobody reads prints without end, and how
// long a job takes meanwhile.
func measureUnread(t *testing.T, h *host, s *stream) {
	t.Helper()
	measure(t, "job echo (sh) before", 20, func(i int) { h.sh(fmt.Sprint("before", i), "echo hello") })
	s.enter(t, "yes\r")
	s.readTo(t, "y\r\ny\r\n")
	offset := s.offset // of the bytes that have arrived so far
	begin := time.Now()
	for s.offset < offset+500_000 {
		s.readTo(t, "y\r\n")
	}
	t.Logf("yes, read: %.2f MB/s", float64(s.offset-offset)/1e6/time.Since(begin).Seconds())
	s.cancel()
	memory := func(id string) int {
		kilobytes, _ := strconv.Atoi(strings.Fields(string(h.sh(id, "grep VmRSS /proc/1/status").stdout))[1])
		return kilobytes
	}
	time.Sleep(2 * time.Second) // so that the ring is full
	idle := func(id string) int {
		ticks, _ := strconv.Atoi(strings.Fields(string(h.sh(id, "head -1 /proc/stat").stdout))[4])
		return ticks
	}
	before, busy, idled := memory("rss1"), agentCPU(t, h, "cpu1"), idle("idle1")
	begin = time.Now()
	time.Sleep(3 * time.Second)
	ticks, took := agentCPU(t, h, "cpu2")-busy, time.Since(begin)
	idled = idle("idle2") - idled
	after := memory("rss2")
	t.Logf("yes, unread: %.0f %% of a processor in the agent, %.0f %% idle; its memory %d kB, then %d kB",
		float64(ticks)/took.Seconds(), float64(idled)/took.Seconds(), before, after)
	if after > before+8000 {
		t.Errorf("the agent grew from %d to %d kB", before, after)
	}
	if share := float64(ticks) / took.Seconds(); share > 50 {
		t.Errorf("%.0f %% of a processor in the agent", share)
	}
	measure(t, "job echo (sh) meanwhile", 20, func(i int) { h.sh(fmt.Sprint("meanwhile", i), "echo hello") })
	h.guestCall("terminals.end", map[string]any{"id": terminalID}, nil)
}

// measureManyTerminals opens the 64 shells that a machine may have.
func measureManyTerminals(t *testing.T, h *host) {
	t.Helper()
	memory := func(id string) int {
		kilobytes, _ := strconv.Atoi(strings.Fields(string(h.sh(id, "grep VmRSS /proc/1/status").stdout))[1])
		return kilobytes
	}
	before := memory("rss3")
	open := func(number int) int {
		status, _ := h.call("POST", "/calls/terminals.open", map[string]any{"id": fmt.Sprintf("00000000-0000-4000-8000-%012d", number), "cols": 80, "rows": 24})
		return status
	}
	measure(t, "open a terminal", 64, func(i int) {
		if status := open(i); status != 200 {
			t.Fatalf("terminal %d: %d", i, status)
		}
	})
	if status := open(64); status != 409 {
		t.Errorf("one more terminal: %d", status)
	}
	for i := range 64 {
		s := h.guestStream("terminals.attach", map[string]any{"id": fmt.Sprintf("00000000-0000-4000-8000-%012d", i)}, nil)
		s.readTo(t, "# ")
	}
	t.Logf("64 terminals with a connection each: the agent grew from %d to %d kB", before, memory("rss4"))
}
