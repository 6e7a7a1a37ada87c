package frames

import (
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// printed is a source of output that is complete.
type printed string

func (p printed) ReadAt(space []byte, offset int64) (int, error) { return copy(space, p[offset:]), nil }

func outputOf(offset uint64, bytes string) string {
	return string(binary.BigEndian.AppendUint64(nil, offset)) + bytes
}

// writes counts how many writes the guest makes.
type writes struct {
	net.Conn
	count atomic.Int32
}

func (w *writes) Write(b []byte) (int, error) {
	w.count.Add(1)
	return w.Conn.Write(b)
}

func TestTheOutputOfAShortJobAndItsEndAreOneWrite(t *testing.T) {
	guest, conn := net.Pipe()
	counted := &writes{Conn: guest}
	_ = Serve(&oneSession{counted}, func(c *Call) {
		_ = c.Begin(201)
		_, _ = c.Output(Stdout, printed("out"), 0)
		_, _ = c.Output(Stderr, printed("err"), 0)
		c.End([]byte("{}"))
	}, refuse)
	t.Cleanup(func() { _ = conn.Close() })
	h := &host{t, conn}
	h.send(requestOf(1, "PUT /jobs/a", ""))
	h.expect(KindBegin, 1, status(201))
	h.expect(KindStdout, 1, outputOf(0, "out"))
	h.expect(KindStderr, 1, outputOf(0, "err"))
	h.expect(KindEnd, 1, "{}")
	if count := counted.count.Load(); count != 2 {
		t.Errorf("%d writes", count)
	}
}

func TestAStreamIsSentInOrder(t *testing.T) {
	h := open(t, func(c *Call) {
		_ = c.Begin(201)
		_, _ = c.Output(Stdout, printed("abc"), 1)
		_, _ = c.Output(Stderr, printed("err"), 0)
		_, _ = c.Output(Stderr, printed("err"), 3) // nothing there yet: no frame
		c.End([]byte("{}"))
	})
	h.send(requestOf(3, "PUT /jobs/a", ""))
	h.expect(KindBegin, 3, status(201))
	h.expect(KindStdout, 3, outputOf(1, "bc"))
	h.expect(KindStderr, 3, outputOf(0, "err"))
	h.expect(KindEnd, 3, "{}")
}

func TestOutputWaitsForCredit(t *testing.T) {
	content := printed(strings.Repeat("0123456789abcdef", 64<<10)) // 1 MiB
	blocked := make(chan struct{})
	h := open(t, func(c *Call) {
		_ = c.Begin(200)
		for offset := int64(0); offset < int64(len(content)); {
			n, err := c.Output(Stdout, content, offset)
			if err != nil {
				return
			}
			if offset += int64(n); n > 0 {
				continue
			}
			if c.Flush() != nil {
				return
			}
			blocked <- struct{}{}
			for c.Credit() == 0 {
				<-c.Granted()
			}
		}
		c.End(nil)
	})
	h.send(requestOf(1, "GET /", ""))
	h.expect(KindBegin, 1, status(200))
	next := uint64(0)
	receive := func(credit int) {
		t.Helper()
		for credit > offsetSize && next < uint64(len(content)) {
			kind, _, payload := h.receive()
			size := len(payload) - offsetSize
			if credit -= len(payload); kind != KindStdout || size < 1 || size > MaxOutput || credit < 0 {
				t.Fatalf("a frame of kind %d with %d bytes, %d bytes of credit left", kind, size, credit)
			}
			if payload != outputOf(next, string(content[next:next+uint64(size)])) {
				t.Fatalf("other bytes at %d", next)
			}
			next += uint64(size)
		}
	}
	grant := func(bytes uint32) {
		h.send(frameOf(KindCredit, 1, string(binary.BigEndian.AppendUint32(nil, bytes))))
	}
	receive(StartCredit)
	for _, bytes := range []uint32{offsetSize + 1, 64 << 10, 100_000} {
		<-blocked
		grant(bytes)
		receive(int(bytes))
	}
	<-blocked
	grant(1<<32 - 1)
	receive(1 << 32)
	h.expect(KindEnd, 1, "")
}
