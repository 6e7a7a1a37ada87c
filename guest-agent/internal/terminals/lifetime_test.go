package terminals

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/freeze"
)

// groups returns the names of the control groups of terminals.
func (m *machine) groups() []string {
	found, _ := filepath.Glob(filepath.Join(m.config.CgroupDirectory, "terminal-*"))
	return found
}

func TestEndHangsUpEveryProcessOfATerminal(t *testing.T) {
	m := newMachine(t, Config{})
	for number, c := range map[int]struct{ script, want string }{
		1: {"echo ready; read x", "SIGHUP"},
		2: {"trap 'echo bye; exit 9' HUP; echo ready; while :; do sleep 0.01; done", "exit 9"},
		3: {"setsid sleep 1000 & (sleep 1000 &) ; echo ready; read x", "SIGHUP"},
		4: {"sleep 1000 & echo ready; kill -STOP $$", "SIGHUP"},
	} {
		id := m.sh(number, c.script)
		client := m.attach(id, -1)
		client.awaitText("ready")
		m.mustEnd(id)
		if got := client.end(); got != c.want {
			t.Errorf("%s: %s %q", c.script, got, client.text())
		}
	}
	if got := m.mustList(); len(got) != 0 {
		t.Error(got)
	}
	eventually(t, "the control groups go", func() bool { return len(m.groups()) == 0 })
}

func TestProcessesThatIgnoreTheHangUpAreKilled(t *testing.T) {
	m := newMachine(t, Config{})
	id := m.sh(1, "trap '' HUP; setsid sleep 1000 & echo ready; while :; do sleep 1; done")
	c := m.attach(id, -1)
	c.awaitText("ready")
	m.mustEnd(id)
	m.mustEnd(id) // has no effect on an ended terminal
	if got := c.end(); got != "SIGKILL" {
		t.Error(got)
	}
	if left, _ := os.ReadFile(filepath.Join(m.config.CgroupDirectory, "background", "cgroup.procs")); len(left) != 0 {
		t.Errorf("processes are left: %s", left)
	}
}

// As after a remote login: a program that the user left in the background goes on when the shell exits.
func TestProcessesInTheBackgroundOutliveTheirShell(t *testing.T) {
	m := newMachine(t, Config{})
	left := filepath.Join(t.TempDir(), "left")
	id := m.sh(1, "(trap '' HUP; while :; do echo noise; echo x >> "+left+"; sleep 0.01; done) & sleep 0.05; exit 2")
	c := m.attach(id, -1)
	if got := c.end(); got != "exit 2" || !strings.Contains(c.text(), "noise") {
		t.Errorf("%s %q", got, c.text())
	}
	size := func() int {
		content, _ := os.ReadFile(left)
		return len(content)
	}
	before := size()
	eventually(t, "the process goes on", func() bool { return size() > before+4 })
	eventually(t, "the control group goes", func() bool { return len(m.groups()) == 0 })
}

func TestATerminalWithoutAConnectionEnds(t *testing.T) {
	m := newMachine(t, Config{})
	idle := m.mustOpen(1, fields{"idle_sec": 0.05, "command": []string{"cat"}})
	eventually(t, "it ends", func() bool { return len(m.mustList()) == 0 })
	if got := m.attach(idle, -1).end(); got != "SIGHUP" {
		t.Error(got)
	}
	used := m.mustOpen(2, fields{"idle_sec": 0.5, "command": []string{"cat"}})
	first := m.attach(used, -1)
	second := m.attach(used, -1)
	first.detach()
	for begin := time.Now(); time.Since(begin) < 1500*time.Millisecond; { // three times idle_sec
		second.enter("x\r")
		time.Sleep(20 * time.Millisecond)
	}
	if len(m.mustList()) != 1 {
		t.Fatal("a terminal with a connection ended")
	}
	second.detach()
	eventually(t, "it ends", func() bool { return len(m.mustList()) == 0 })
}

func TestAnEndedTerminalIsKeptForAWhile(t *testing.T) {
	m := newMachine(t, Config{KeepEnded: time.Second})
	id := m.sh(1, "echo 0123456789; exit 3")
	eventually(t, "it ends", func() bool { return len(m.mustList()) == 0 })
	for offset, want := range map[int64]string{-1: "0123456789\r\n", 0: "0123456789\r\n", 4: "456789\r\n", 12: "", 13: "0123456789\r\n"} {
		c, err := m.tryAttach(id, offset)
		if err != nil {
			t.Fatal(err)
		}
		close(c.taking)
		if got := c.end(); got != "exit 3" || c.text() != want || (offset > 0 && offset <= 12 && c.head.Offset != offset) {
			t.Errorf("%d: %s %q %+v", offset, got, c.text(), c.head)
		}
	}
	if err := m.call("terminals.resize", fields{"id": id, "cols": 1, "rows": 1}, nil); err != nil {
		t.Error(err)
	}
	eventually(t, "it is forgotten", func() bool {
		_, err := m.tryAttach(id, -1)
		return codeOf(err) == fault.NotFound
	})
}

func TestOnlyTheLastEndedTerminalsAreKept(t *testing.T) {
	m := newMachine(t, Config{})
	for number := range maxEnded + 5 {
		m.attach(m.sh(number, "exit 0"), -1).end()
	}
	eventually(t, "the first are forgotten", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.terminals) == maxEnded && m.terminals[idOf(4)] == nil && m.terminals[idOf(5)] != nil
	})
}

// A machine that was made from a memory snapshot has another identity than the one that opened the terminals.
func TestProcessesOfReleasedTerminalsGoOn(t *testing.T) {
	m := newMachine(t, Config{})
	alive := filepath.Join(t.TempDir(), "alive")
	begin := time.Now()
	id := m.mustOpen(1, fields{"idle_sec": 0.5, "command": []string{"sh", "-c", "while :; do head -c 100000 /dev/zero; echo x >> " + alive + "; done"}})
	ended := m.sh(2, "exit 0")
	m.attach(ended, -1).end()
	c := m.attachUnread(id, -1)
	eventually(t, "its output waits", func() bool { return m.bytes(id) > 200_000 })
	released, _ := m.get(id)
	m.LetGo()
	<-c.over
	if codeOf(c.err) != fault.NotFound {
		t.Error(c.err)
	}
	if len(m.mustList()) != 0 {
		t.Error(m.mustList())
	}
	for _, absent := range []string{id, ended} {
		if _, err := m.tryAttach(absent, -1); codeOf(err) != fault.NotFound {
			t.Error(err)
		}
	}
	size := func() int {
		content, _ := os.ReadFile(alive)
		return len(content)
	}
	eventually(t, "idle_sec passes", func() bool { return time.Since(begin) > time.Second })
	before := size()
	eventually(t, "the process goes on", func() bool { return size() > before+4 })
	if released.output.bytes != nil {
		t.Error("output of a released terminal is kept")
	}
	again := m.attach(m.sh(1, "grep -o terminal-.* /proc/self/cgroup"), -1)
	if again.end(); again.text() != "terminal-"+id+".1\r\n" {
		t.Errorf("a terminal with the id of one that was let go: %q", again.text())
	}
}

// bytes returns how many bytes of output a terminal has had.
func (m *machine) bytes(id string) int64 {
	m.t.Helper()
	t, err := m.get(id)
	if err != nil {
		m.t.Fatal(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.output.end
}

func TestNoTerminalIsOpenedDuringAFreeze(t *testing.T) {
	for name, freezer := range map[string]func(disk, processes *freeze.Gate) *freeze.Freezer{
		"of the root file system": func(disk, _ *freeze.Gate) *freeze.Freezer { return freeze.Pretended(disk) },
		"of the processes":        func(_, processes *freeze.Gate) *freeze.Freezer { return freeze.Pretended(processes) },
	} {
		t.Run(name, func(t *testing.T) {
			disk, processes := new(freeze.Gate), new(freeze.Gate)
			m := newMachine(t, Config{Gate: disk, StartGate: processes})
			running := m.attach(m.sh(1, "exec cat"), -1)
			f := freezer(disk, processes)
			if err := f.Freeze(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			request := &openRequest{ID: idOf(2), size: size{80, 24}}
			if err := m.open(ctx, request); err != context.DeadlineExceeded {
				t.Error(err)
			}
			running.enter("meanwhile\r")
			running.awaitText("meanwhile\r\nmeanwhile\r\n")
			opened := make(chan error)
			go func() { opened <- m.open(t.Context(), request) }()
			if err := f.Thaw(); err != nil {
				t.Fatal(err)
			}
			if err := <-opened; err != nil {
				t.Error(err)
			}
		})
	}
}

// Interactive shells ignore TERM, with which a power-off begins.
func TestThePowerOffHangsUpShells(t *testing.T) {
	m := newMachine(t, Config{})
	id := m.sh(1, "trap '' TERM; sleep 1000 & echo ready; read x")
	c := m.attach(id, -1)
	c.awaitText("ready")
	m.Abandon()
	eventually(t, "its processes end", func() bool {
		events, _ := os.ReadFile(filepath.Join(m.config.CgroupDirectory, "terminal-"+id, "cgroup.events"))
		return strings.Contains(string(events), "populated 0")
	})
	select {
	case <-c.over:
		t.Errorf("the host was told that the program ended: %s", c.end())
	case <-time.After(100 * time.Millisecond): // long enough for the end of a terminal
	}
}
