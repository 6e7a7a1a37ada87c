package terminals

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheRingKeepsTheLastBytes(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	var all []byte
	var r ring
	for len(all) < 3*ringSize {
		data := make([]byte, random.Intn(readSize))
		_, _ = random.Read(data)
		r.append(data)
		all = append(all, data...)
		if r.end != int64(len(all)) || r.begin != max(0, r.end-ringSize) {
			t.Fatalf("%d to %d after %d bytes", r.begin, r.end, len(all))
		}
		if kept := r.end - r.begin; int64(len(r.bytes)) > max(minRing, 2*kept) {
			t.Fatalf("%d bytes of memory for %d", len(r.bytes), kept)
		}
		from := r.begin + random.Int63n(r.end-r.begin+1)
		p := make([]byte, random.Intn(2*readSize))
		n := r.read(p, from)
		if n != int(min(int64(len(p)), r.end-from)) || !bytes.Equal(p[:n], all[from:][:n]) {
			t.Fatalf("%d bytes from %d of %d to %d", n, from, r.begin, r.end)
		}
	}
}

// numbers prints the numbers from 1 to count, one in each line.
func numbers(count int) string { return "exec seq 1 " + strconv.Itoa(count) }

func linesTo(count int) []byte {
	var lines []byte
	for i := 1; i <= count; i++ {
		lines = append(strconv.AppendInt(lines, int64(i), 10), "\r\n"...)
	}
	return lines
}

// A client disconnects at random moments and goes on from the offset that it reached, as long as the ring holds it.
func TestReconnectingLosesAndDoublesNoByte(t *testing.T) {
	m := newMachine(t, Config{})
	random := rand.New(rand.NewSource(2))
	const count = 400_000
	want := linesTo(count)
	id := m.sh(1, "stty -F /dev/stdin; read x; "+numbers(count))
	var got []byte
	reconnects, losses := 0, 0
	starter := m.attach(id, -1)
	starter.awaitText("line = 0")
	starter.enter("\r")
	starter.awaitText("\r\n1\r\n")
	prefix := int64(strings.Index(starter.text(), "\r\n1\r\n") + 2)
	starter.detach()
	for {
		c := m.attachUnread(id, prefix+int64(len(got)))
		if c.head.Offset != prefix+int64(len(got)) {
			losses++ // the ring has lost bytes while nobody was connected: go on after them
			got = append(got, want[len(got):c.head.Offset-prefix]...)
		}
		hasEnded := false
		for range random.Intn(20) {
			select {
			case c.taking <- struct{}{}:
			case <-c.over:
				hasEnded = true
			}
		}
		if !hasEnded {
			c.detach()
		}
		reconnects++
		got = append(got, c.output...)
		if !bytes.Equal(got, want[:len(got)]) {
			t.Fatalf("other bytes before %d", len(got))
		}
		if hasEnded {
			if got := c.end(); got != "exit 0" {
				t.Fatal(got)
			}
			break
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
	t.Logf("%d bytes, %d reconnects, %d losses", len(got), reconnects, losses)
}

// While one client is always connected, the program waits for it, so a second one never finds a gap either.
func TestSeveralConnectionsGetTheSameBytes(t *testing.T) {
	m := newMachine(t, Config{})
	const count = 200_000
	want := linesTo(count)
	id := m.sh(1, "read x; "+numbers(count))
	clients := []*client{m.attach(id, -1), m.attach(id, -1), m.attachUnread(id, -1)}
	clients[0].enter("\r")
	slow := clients[2]
	for range 10 {
		slow.taking <- struct{}{}
		time.Sleep(time.Millisecond)
	}
	close(slow.taking)
	for i, c := range clients {
		if got := c.end(); got != "exit 0" || !bytes.Equal(c.output, append([]byte("\r\n"), want...)) {
			t.Errorf("client %d: %s, %d bytes, want %d", i, got, len(c.output), len(want)+2)
		}
	}
}

func TestTheProgramWaitsForTheSlowestConnection(t *testing.T) {
	m := newMachine(t, Config{})
	const count = 200_000 // 1.5 MB of output
	id := m.sh(1, numbers(count))
	slow, fast := m.attachUnread(id, -1), m.attach(id, -1)
	before := int64(-1)
	eventually(t, "the output stands still", func() bool {
		time.Sleep(50 * time.Millisecond)
		now := m.bytes(id)
		defer func() { before = now }()
		return now == before && now > 0
	})
	if before < ringSize/2 || before > ringSize {
		t.Errorf("%d bytes while a connection takes none", before)
	}
	close(slow.taking)
	for _, c := range []*client{slow, fast} {
		if got := c.end(); got != "exit 0" || !bytes.Equal(c.output, linesTo(count)) {
			t.Errorf("%s, %d bytes", got, len(c.output))
		}
	}
}

func TestWithoutAConnectionTheLastBytesAreKept(t *testing.T) {
	m := newMachine(t, Config{})
	const count = 300_000
	want := linesTo(count)
	id := m.sh(1, numbers(count))
	eventually(t, "the program ends although nobody reads", func() bool { return len(m.mustList()) == 0 })
	for _, offset := range []int64{-1, 0, 100, int64(len(want)) + 1} {
		c := m.attach(id, offset)
		if got := c.end(); got != "exit 0" || c.head.Offset != int64(len(want))-ringSize || !bytes.Equal(c.output, want[len(want)-ringSize:]) {
			t.Errorf("%d: %s, %d bytes from %d", offset, got, len(c.output), c.head.Offset)
		}
	}
	c := m.attach(id, int64(len(want))-1000)
	if got := c.end(); got != "exit 0" || !bytes.Equal(c.output, want[len(want)-1000:]) {
		t.Errorf("%s %q", got, c.text())
	}
}

func TestAConnectionThatTakesNothingIsCut(t *testing.T) {
	m := newMachine(t, Config{Stall: 300 * time.Millisecond})
	id := m.sh(1, "read x; "+numbers(200_000))
	idle := m.attachUnread(id, -1)
	reader := m.attach(id, -1)
	time.Sleep(2 * m.config.Stall)
	select {
	case <-idle.over:
		t.Fatal("a connection was cut while there was no output")
	default:
	}
	reader.enter("\r")
	if got := idle.end(); !strings.HasPrefix(got, "error: the connection did not take the output") {
		t.Error(got)
	}
	if got := reader.end(); got != "exit 0" || !bytes.Equal(reader.output, append([]byte("\r\n"), linesTo(200_000)...)) {
		t.Errorf("%s, %d bytes", got, len(reader.output))
	}
}

// cpu returns the processor time that this process has used.
func cpu() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse)
}

func TestOutputThatNobodyReadsIsBounded(t *testing.T) {
	m := newMachine(t, Config{})
	before := heap()
	for number := range 4 {
		m.mustOpen(number, fields{"command": []string{"yes"}})
	}
	eventually(t, "the rings are full", func() bool { return m.bytes(idOf(3)) > 2*ringSize })
	begin, busy, from := time.Now(), cpu(), m.bytes(idOf(0))
	eventually(t, "the programs go on", func() bool { return m.bytes(idOf(0)) > from+2*ringSize })
	took := time.Since(begin)
	grown := heap() - before
	if grown > 4*ringSize+(256<<10) {
		t.Errorf("%d bytes of memory", grown)
	}
	t.Logf("4 terminals: %d KiB of memory; %.1f MB/s each, %.0f %% of a processor", grown>>10,
		float64(m.bytes(idOf(0))-from)/1e6/took.Seconds(), 100*float64(cpu()-busy)/float64(took))
	c := m.attach(idOf(0), -1)
	begin, from = time.Now(), m.bytes(idOf(0))
	eventually(t, "the programs go on", func() bool { return m.bytes(idOf(0)) > from+(4<<20) })
	t.Logf("with a connection: %.1f MB/s", 4.2/time.Since(begin).Seconds())
	c.enter("\x03")
	if got := c.end(); got != "SIGINT" {
		t.Error(got)
	}
}

func TestIdleTerminalsNeedLittleMemory(t *testing.T) {
	m := newMachine(t, Config{})
	before := heap()
	for number := range maxRunning {
		m.sh(number, "echo ready; read x")
	}
	for number := range maxRunning {
		eventually(t, "it prints", func() bool { return m.bytes(idOf(number)) == 7 })
	}
	grown := heap() - before
	t.Logf("%d bytes for each", grown/maxRunning)
	if grown > maxRunning*24<<10 {
		t.Errorf("%d bytes for each", grown/maxRunning)
	}
}

func TestThePaceOfReads(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	var p pace
	for _, step := range []struct {
		ms, bytes, pause int // when a read of so many bytes ends, and the pause before the next one at the same moment
		period           time.Duration
	}{
		{0, 1, 4, readPeriod},          // the first read after a long time
		{4, 1, 4, readPeriod},          // small output goes on
		{5, 1, 3, readPeriod},          // a key was pressed
		{100, readSize, 0, readPeriod}, // much output
		{101, readSize, 0, readPeriod}, // goes on
		{102, 60000, 2, readPeriod},    // and reaches the limit
		{104, readSize, 0, readPeriod}, // the next period
		{1000, 100, 4, readPeriod},     // little output after a long time
		{1001, 100, 31, unreadPeriod},  // the client leaves
		{1032, 60000, 0, unreadPeriod},
		{1040, 60000, 24, unreadPeriod},
		{1064, 60000, 0, unreadPeriod},
	} {
		p.period = step.period
		p.note(step.bytes, at(step.ms))
		if got := p.pause(at(step.ms)); got != time.Duration(step.pause)*time.Millisecond {
			t.Errorf("%+v: %v", step, got)
		}
	}
	if got := p.pause(at(2000)); got != 0 {
		t.Error(got)
	}
}

// A client pastes more than the kernel keeps for a program that does not read yet.
func TestInputOfAnySizeReachesTheProgram(t *testing.T) {
	m := newMachine(t, Config{})
	const size = 300_000
	id := m.sh(1, fmt.Sprint("stty raw -echo; echo ready; read x < /dev/tty; echo go; head -c ", size, " | sha256sum"))
	c := m.attach(id, -1)
	c.awaitText("ready")
	pasted := make([]byte, size)
	_, _ = rand.New(rand.NewSource(3)).Read(pasted)
	for i := range pasted {
		pasted[i] = 'a' + pasted[i]%26
	}
	c.enter("\n")
	c.awaitText("go")
	c.enter(string(pasted))
	if got := c.end(); got != "exit 0" || !strings.Contains(c.text(), sha256Of(pasted)) {
		t.Errorf("%s %q", got, c.text())
	}
}

// The program reads nothing, so the input of a connection waits. Other connections must still be able to leave, and the
// terminal to end.
func TestInputThatNobodyReadsHoldsNobodyUp(t *testing.T) {
	m := newMachine(t, Config{})
	id := m.sh(1, "stty raw -echo; echo ready; sleep 1000")
	stuck := m.attach(id, -1)
	stuck.awaitText("ready")
	go func() { _, _ = stuck.typing.Write(make([]byte, 1<<20)) }()
	terminal, _ := m.get(id)
	eventually(t, "the input waits", func() bool { return len(terminal.turn) == 1 })
	waits := m.attach(id, -1)
	go func() { _, _ = waits.typing.Write([]byte("x")) }()
	waits.detach()
	stuck.detach()
	eventually(t, "the input is given up", func() bool { return len(terminal.turn) == 0 })
	again := m.attach(id, -1)
	go func() { _, _ = again.typing.Write(make([]byte, 1<<20)) }()
	eventually(t, "the input waits", func() bool { return len(terminal.turn) == 1 })
	m.mustEnd(id)
	if got := again.end(); got != "SIGHUP" {
		t.Error(got)
	}
	eventually(t, "the input is given up", func() bool { return len(terminal.turn) == 0 })
}

func TestTheEndOfInputLeavesTheOutput(t *testing.T) {
	m := newMachine(t, Config{})
	id := m.sh(1, "read x; read y; echo $x $y; exit 6")
	c := m.attach(id, -1)
	c.enter("one\r")
	_ = c.typing.Close()
	other := m.attach(id, -1)
	other.enter("two\r")
	if got := c.end(); got != "exit 6" || !strings.Contains(c.text(), "one two\r\n") {
		t.Errorf("%s %q", got, c.text())
	}
}

func TestAKeyPressIsEchoedAtOnce(t *testing.T) {
	m := newMachine(t, Config{})
	c := m.attach(m.sh(1, "exec cat"), -1)
	var took []time.Duration
	for i := range 200 {
		begin := time.Now()
		c.enter("x")
		for len(c.text()) <= i {
			<-c.grown
		}
		took = append(took, time.Since(begin))
	}
	logDurations(t, "echo", took)
}

func TestAHungUpTerminalCostsLittleAndMayBeOpenedAgain(t *testing.T) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip(err)
	}
	m := newMachine(t, Config{})
	script := `
import os, signal, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
name = os.ttyname(0)
import ctypes
ctypes.CDLL(None).vhangup()
time.sleep(0.3)
again = os.open(name, os.O_RDWR)
os.write(again, b"again\n")
time.sleep(0.3)
os._exit(8)
`
	c := m.attach(m.mustOpen(1, fields{"command": []string{"/usr/bin/python3", "-c", script}}), -1)
	if got := c.end(); got != "exit 8" || !strings.Contains(c.text(), "again\r\n") {
		t.Errorf("%s %q", got, c.text())
	}
}
