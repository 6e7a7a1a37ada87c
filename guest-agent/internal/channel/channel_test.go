package channel

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync/atomic"
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
	c := New(guest, func() bool { return false })
	go func() { _ = c.Run() }()
	t.Cleanup(func() { _ = host.Close() })
	return c, host
}

// echoOf is what the guest sends before the first byte of a session.
func echoOf(token Token, epoch []byte) []byte {
	echo := slices.Concat(token[:], epoch)
	for i := TokenSize; i < len(echo); i++ {
		echo[i] = ^echo[i]
	}
	return echo
}

// open starts a session from the host's end and returns the guest's end of the session.
func open(t *testing.T, c *Channel, host net.Conn, epoch []byte) io.ReadWriteCloser {
	t.Helper()
	go func() { _, _ = host.Write(preambleOf(testToken, string(epoch))) }()
	expected := echoOf(testToken, epoch)
	echo := make([]byte, len(expected))
	if _, err := io.ReadFull(host, echo); err != nil || !bytes.Equal(echo, expected) {
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
	if _, err := host.Write(preambleOf(testToken, string(epoch2))); err != nil {
		t.Fatal(err)
	}
	echo := echoOf(testToken, epoch2)
	var before []byte
	for !bytes.HasSuffix(before, echo) {
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

func TestAnotherTokenIsTakenOnlyWhileItIsAccepted(t *testing.T) {
	guest, host := net.Pipe()
	var accepts atomic.Bool
	c := New(guest, accepts.Load)
	go func() { _ = c.Run() }()
	t.Cleanup(func() { _ = host.Close() })
	current := open(t, c, host, epoch1)
	refused := preambleOf(otherToken, string(epoch2))
	go func() { _, _ = host.Write(refused) }()
	got := make([]byte, len(refused))
	if _, err := io.ReadFull(current, got); err != nil || !bytes.Equal(got, refused) {
		t.Fatalf("the session got %q, %v", got, err)
	}
	accepts.Store(true)
	go func() { _, _ = host.Write(refused) }()
	echo := make([]byte, TokenSize+EpochSize)
	if _, err := io.ReadFull(host, echo); err != nil || !bytes.Equal(echo, echoOf(otherToken, epoch2)) {
		t.Fatalf("echo %q, %v", echo, err)
	}
	accepts.Store(false)
	if known := c.known(); known == nil || *known != otherToken {
		t.Errorf("token %v", known)
	}
}
