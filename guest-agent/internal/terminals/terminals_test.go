package terminals

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sandbar/guest-agent/internal/fault"
)

func codeOf(err error) fault.Code {
	known := new(fault.Error)
	if errors.As(err, &known) {
		return known.Code
	}
	return ""
}

func TestATerminalIsALoginShellOfItsUser(t *testing.T) {
	m := newMachine(t, Config{})
	id := m.mustOpen(1, fields{"env": map[string]string{"GREETING": "hello"}, "user": nil, "cwd": nil})
	c := m.attach(id, -1)
	c.enter("echo $0 $TERM $LANG $GREETING $USER $LOGNAME $SHELL $HOME $PWD; tty; stty size; exit 3\r")
	if got := c.end(); got != "exit 3" {
		t.Error(got)
	}
	name := strings.Split(strings.TrimSpace(lineOf(t, "/etc/passwd", "root:")), ":")[6]
	base := name[strings.LastIndexByte(name, '/')+1:]
	want := fmt.Sprintf("-%s xterm-256color C.UTF-8 hello root root %s /root /root", base, name)
	for _, wanted := range []string{want + "\r\n", "\r\n/dev/pts/", "\r\n24 80\r\n"} {
		if !strings.Contains(c.text(), wanted) {
			t.Errorf("no %q in %q", wanted, c.text())
		}
	}
}

func lineOf(t *testing.T, path, prefix string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	t.Fatal(prefix)
	return ""
}

func TestATerminalRunsACommandInsteadOfAShell(t *testing.T) {
	m := newMachine(t, Config{})
	for number, c := range []struct {
		request      fields
		output, want string
	}{
		{fields{"command": []string{"sh", "-c", "echo $0 $#; exit 7", "a", "b"}}, "a 1\r\n", "exit 7"},
		{fields{"command": []string{"sh", "-c", "kill -9 $$"}}, "", "SIGKILL"},
		{fields{"command": []string{"pwd"}, "cwd": "/usr"}, "/usr\r\n", "exit 0"},
		{fields{"command": []string{"sh", "-c", "id -un; echo x > $(tty)"}, "user": "nobody"}, "nobody\r\nx\r\n", "exit 0"},
		{fields{"command": []string{"sh", "-c", "echo $TERM $LANG"}, "env": fields{"TERM": "dumb", "LANG": "C"}}, "dumb C\r\n", "exit 0"},
		{fields{"command": []string{"no-such-program"}}, "sandbar: no-such-program: not found\r\n", "exit 127"},
		{fields{"command": []string{"/no/such"}}, "sandbar: /no/such: not found\r\n", "exit 127"},
		{fields{"command": []string{"/etc/passwd"}}, "sandbar: /etc/passwd: permission denied\r\n", "exit 126"},
		{fields{"command": []string{"sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo yes"}}, "yes\r\n", "exit 0"},
		{fields{"command": []string{"sh", "-c", "ps -o sid= -p $$ | grep -cx \" *$$\"; ps -o tpgid= -p $$ | grep -c ."}}, "1\r\n1\r\n", "exit 0"},
		{fields{"command": []string{"sh", "-c", "grep -o terminal-.* /proc/self/cgroup"}}, "terminal-" + idOf(10) + "\r\n", "exit 0"},
		{fields{"command": []string{"sh", "-c", "exec >/dev/null 2>&1 </dev/null; sleep 0.1; exit 4"}}, "", "exit 4"},
		{fields{"command": []string{"sh", "-c", "stty -a | grep -o ' iutf8'"}}, " iutf8\r\n", "exit 0"},
	} {
		client := m.attach(m.mustOpen(number, c.request), 0)
		if got := client.end(); got != c.want || client.text() != c.output {
			t.Errorf("%v: %s %q, want %s %q", c.request, got, client.text(), c.want, c.output)
		}
	}
}

func TestBadParametersAreRefused(t *testing.T) {
	m := newMachine(t, Config{})
	good := fields{"id": idOf(1), "cols": 80, "rows": 24}
	for _, change := range []fields{
		{"id": "x"}, {"id": "../../../../../../../../../../../../x"}, {"id": strings.ToUpper("0195a1b2-c3d4-7890-abcd-ef0123456789")},
		{"cols": 0}, {"rows": 0}, {"cols": 65536}, {"cols": -1}, {"rows": "x"},
		{"cwd": "relative"}, {"cwd": "/no/such"}, {"cwd": "/etc/passwd"}, {"cwd": "/\x00"},
		{"user": "no-such-user"}, {"user": "\x00"}, {"command": []string{"a\x00b"}}, {"env": fields{"A=B": "x"}}, {"env": fields{"A": "\x00"}}, {"env": fields{"": "x"}},
		{"idle_sec": 0}, {"idle_sec": -1}, {"idle_sec": 1e10},
	} {
		request := fields{}
		for _, from := range []fields{good, change} {
			for name, value := range from {
				request[name] = value
			}
		}
		if err := m.call("terminals.open", request, nil); codeOf(err) != fault.Validation {
			t.Errorf("%v: %v", change, err)
		}
	}
	for name, call := range m.Calls() {
		if _, err := call(t.Context(), []byte("[]")); name != "terminals.list" && codeOf(err) != fault.Validation {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(m.mustList()) != 0 {
		t.Error(m.mustList())
	}
}

func TestAbsentTerminalsAreNotFound(t *testing.T) {
	m := newMachine(t, Config{})
	if err := m.call("terminals.resize", fields{"id": idOf(1), "cols": 1, "rows": 1}, nil); codeOf(err) != fault.NotFound {
		t.Error(err)
	}
	if err := m.call("terminals.end", fields{"id": idOf(1)}, nil); codeOf(err) != fault.NotFound {
		t.Error(err)
	}
	if _, err := m.tryAttach(idOf(1), -1); codeOf(err) != fault.NotFound {
		t.Error(err)
	}
}

func TestASecondOpenWithTheSameIdHasNoEffect(t *testing.T) {
	m := newMachine(t, Config{})
	id := m.sh(1, "echo first; read x; exit 5")
	m.sh(1, "echo second")
	c := m.attach(id, -1)
	c.awaitText("first\r\n")
	c.enter("\r")
	if got := c.end(); got != "exit 5" {
		t.Error(got)
	}
	m.sh(1, "echo third")
	if got := m.attach(id, -1); got.end() != "exit 5" || strings.Contains(got.text(), "third") {
		t.Errorf("%s %q", got.end(), got.text())
	}
}

func TestTheLastResizeCounts(t *testing.T) {
	m := newMachine(t, Config{})
	id := m.sh(1, "trap 'stty size' WINCH; echo ready; while :; do read x; stty size; done")
	c := m.attach(id, -1)
	c.awaitText("ready")
	for cols := 10; cols <= 100; cols++ {
		if err := m.call("terminals.resize", fields{"id": id, "cols": cols, "rows": cols + 1}, nil); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitText("101 100\r\n") // by the signal, with no key pressed
	if got := m.mustList()[0]; got.Cols != 100 || got.Rows != 101 {
		t.Errorf("%+v", got)
	}
	if got := m.attach(id, -1).head; got.Cols != 100 || got.Rows != 101 {
		t.Errorf("%+v", got)
	}
	for _, bad := range []fields{{"id": id}, {"id": id, "cols": 0, "rows": 1}, {"id": id, "cols": 70000, "rows": 1}} {
		if err := m.call("terminals.resize", bad, nil); codeOf(err) != fault.Validation {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestTheListShowsRunningTerminals(t *testing.T) {
	m := newMachine(t, Config{})
	if got := m.mustList(); len(got) != 0 {
		t.Error(got)
	}
	before := time.Now().Add(-time.Second)
	first := m.mustOpen(1, fields{"cols": 100, "rows": 50})
	second := m.sh(2, "read x")
	third := m.sh(3, ": "+strings.Repeat("long ", 100_000))
	m.attach(third, -1).end()
	a, b := m.attach(second, -1), m.attach(second, -1)
	got := m.mustList()
	if len(got) != 2 || got[0].ID != first || got[1].ID != second || got[0].Connections != 0 || got[1].Connections != 2 ||
		got[0].Cols != 100 || got[0].Rows != 50 || len(got[0].Command) != 1 || !strings.HasPrefix(got[0].Command[0], "/bin/") || strings.Join(got[1].Command, " ") != "/bin/sh -c read x" ||
		got[0].CreatedAt.Before(before) || got[0].CreatedAt.Location() != time.UTC {
		t.Errorf("%+v", got)
	}
	a.detach()
	b.detach()
	if got := m.mustList(); got[1].Connections != 0 {
		t.Errorf("%+v", got)
	}
}

func TestTheListOfLongCommandsStaysShort(t *testing.T) {
	m := newMachine(t, Config{})
	m.mustOpen(1, fields{"command": append([]string{"/bin/sleep", "1000"}, strings.Repeat("é", 60_000), "more")})
	m.mustOpen(2, fields{"command": append([]string{"/bin/sh", "-c", "sleep 1000"}, strings.Split(strings.Repeat("x", 50_000), "")...)})
	for _, l := range m.mustList() {
		if text := strings.Join(l.Command, " "); len(text) > maxListed+10 || !strings.HasSuffix(text, "…") {
			t.Errorf("%d bytes: %s", len(text), text)
		}
	}
}

func TestSixtyFourTerminalsAreTheLimit(t *testing.T) {
	m := newMachine(t, Config{})
	for number := range maxRunning {
		m.sh(number, "echo number $PPID; exec cat")
	}
	if err := m.call("terminals.open", fields{"id": idOf(99), "cols": 1, "rows": 1}, nil); codeOf(err) != fault.Conflict {
		t.Error(err)
	}
	m.sh(0, "has no effect")
	for number := range maxRunning {
		c := m.attach(idOf(number), -1)
		c.enter(fmt.Sprint("hello ", number, "\r"))
		c.awaitText(fmt.Sprint("\r\nhello ", number, "\r\nhello ", number, "\r\n"))
	}
	m.mustEnd(idOf(7))
	m.sh(99, "read x")
	if got := len(m.mustList()); got != maxRunning {
		t.Error(got)
	}
}
