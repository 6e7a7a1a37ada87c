package channel

import (
	"bytes"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

var (
	epoch1 = []byte("epoch--1")
	epoch2 = []byte("epoch--2")
)

// startChannel returns a running channel and the host's end of its port.
func startChannel(t *testing.T) (*Channel, net.Conn) {
	guest, host := net.Pipe()
	c := New(guest, testToken)
	go func() { _ = c.Run() }()
	t.Cleanup(func() { _ = host.Close() })
	return c, host
}

// open starts a session from the host's end and returns the guest's end of the session.
func open(t *testing.T, c *Channel, host net.Conn, epoch []byte) net.Conn {
	t.Helper()
	preamble := slices.Concat(testToken[:], epoch)
	go func() { _, _ = host.Write(preamble) }()
	echo := make([]byte, len(preamble))
	if _, err := io.ReadFull(host, echo); err != nil || !bytes.Equal(echo, preamble) {
		t.Fatalf("echo %q, %v", echo, err)
	}
	session, err := c.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func TestSessionCarriesBytesBothWays(t *testing.T) {
	c, host := startChannel(t)
	session := open(t, c, host, epoch1)
	go func() { _, _ = host.Write([]byte("ping")) }()
	got := make([]byte, 4)
	if _, err := io.ReadFull(session, got); err != nil || string(got) != "ping" {
		t.Fatalf("%q, %v", got, err)
	}
	want := bytes.Repeat([]byte("0123456789"), 10_000) // more than the port takes in one write
	go func() { _, _ = session.Write(want) }()
	all := make([]byte, len(want))
	if _, err := io.ReadFull(host, all); err != nil || !bytes.Equal(all, want) {
		t.Fatalf("the large answer differs, %v", err)
	}
}

func TestNewSessionEndsTheOld(t *testing.T) {
	c, host := startChannel(t)
	old := open(t, c, host, epoch1)
	current := open(t, c, host, epoch2)
	if _, err := old.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read of the old session: %v", err)
	}
	if n, err := old.Write([]byte("late")); n != 0 || err == nil {
		t.Errorf("write of the old session: %d, %v", n, err)
	}
	go func() { _, _ = current.Write([]byte("new")) }()
	got := make([]byte, 3)
	if _, err := io.ReadFull(host, got); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
}

// A host that stops reading leaves a write of the guest blocked. When the next session starts, the rest of that write
// must come before the echo, never after it.
func TestBlockedWriteOfTheOldSessionComesBeforeTheEcho(t *testing.T) {
	c, host := startChannel(t)
	old := open(t, c, host, epoch1)
	failed := make(chan error, 1)
	go func() {
		_, err := old.Write(bytes.Repeat([]byte("o"), 10*maxWrite))
		failed <- err
	}()
	if _, err := io.ReadFull(host, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	preamble := slices.Concat(testToken[:], epoch2)
	if _, err := host.Write(preamble); err != nil {
		t.Fatal(err)
	}
	var before []byte
	for !bytes.HasSuffix(before, preamble) {
		next := make([]byte, 1)
		if _, err := host.Read(next); err != nil {
			t.Fatal(err)
		}
		before = append(before, next[0])
	}
	if len(before) > 2*maxWrite {
		t.Errorf("%d bytes of the old session came before the echo", len(before))
	}
	if err := <-failed; err == nil {
		t.Error("the old write succeeded")
	}
	_ = host.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _ := host.Read(make([]byte, 1)); n != 0 {
		t.Error("a byte of the old session came after the echo")
	}
}

func TestSessionThatDoesNotReadIsEnded(t *testing.T) {
	c, host := startChannel(t)
	session := open(t, c, host, epoch1)
	junk := make([]byte, 1<<20)
	for range maxPending>>20 + 1 {
		if _, err := host.Write(junk); err != nil {
			t.Fatal(err)
		}
	}
	open(t, c, host, epoch2)
	if _, err := io.Copy(io.Discard, session); err != nil {
		t.Error(err)
	}
}

func TestParseToken(t *testing.T) {
	for digits, ok := range map[string]bool{
		"":                                     false,
		"zz":                                   false,
		string(make([]byte, 64)):               false,
		"00":                                   false,
		string(bytes.Repeat([]byte("aF"), 32)): true,
	} {
		if _, err := ParseToken(digits); (err == nil) != ok {
			t.Errorf("%q: %v", digits, err)
		}
	}
}
