package frames

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
)

// host is the host's end of a session whose handler the test chooses.
type host struct {
	t *testing.T
	net.Conn
}

type oneSession struct{ stream io.ReadWriteCloser }

func (l *oneSession) Accept() (io.ReadWriteCloser, error) {
	if l.stream == nil {
		return nil, io.EOF
	}
	defer func() { l.stream = nil }()
	return l.stream, nil
}

func refuse(c *Call) { c.Answer(500, []byte("too many")) }

func open(t *testing.T, handle Handler) *host {
	guest, conn := net.Pipe()
	_ = Serve(&oneSession{guest}, handle, refuse)
	t.Cleanup(func() { _ = conn.Close() })
	return &host{t, conn}
}

func frameOf(kind byte, id uint32, payload string) []byte {
	return appendFrame(nil, kind, id, nil, []byte(payload))
}

func requestOf(id uint32, head, body string) []byte {
	return frameOf(KindRequest, id, string(binary.BigEndian.AppendUint16(nil, uint16(len(head))))+head+body)
}

func (h *host) send(frames ...[]byte) {
	h.t.Helper()
	for _, frame := range frames {
		if _, err := h.Write(frame); err != nil {
			h.t.Fatal(err)
		}
	}
}

// receive returns the next frame of the guest, or the kind 0 at the end of the session.
func (h *host) receive() (kind byte, id uint32, payload string) {
	h.t.Helper()
	var space [headerSize]byte
	if _, err := io.ReadFull(h, space[:]); err != nil {
		return 0, 0, ""
	}
	content := make([]byte, binary.BigEndian.Uint32(space[:]))
	if _, err := io.ReadFull(h, content); err != nil {
		h.t.Fatal(err)
	}
	return space[4], binary.BigEndian.Uint32(space[5:]), string(content)
}

func (h *host) expect(kind byte, id uint32, payload string) {
	h.t.Helper()
	gotKind, gotID, got := h.receive()
	if gotKind != kind || gotID != id || got != payload {
		h.t.Fatalf("a frame of kind %d, id %d, %.100q; want kind %d, id %d, %.100q", gotKind, gotID, got, kind, id, payload)
	}
}

func (h *host) expectEnd() {
	h.t.Helper()
	if kind, id, payload := h.receive(); kind != 0 {
		h.t.Fatalf("a frame of kind %d, id %d, %q; want the end of the session", kind, id, payload)
	}
}

// echo answers with what it was asked.
func echo(c *Call) {
	c.Answer(200, []byte(c.Method+"|"+c.Path+"|"+c.Query+"|"+string(c.Body)))
}

func status(code int) string { return string(statusBytes(code)) }

func TestARequestIsAnswered(t *testing.T) {
	h := open(t, echo)
	h.send(requestOf(1, "PUT /jobs/a?stdout=1", "body"))
	h.expect(KindAnswer, 1, status(200)+"PUT|/jobs/a|stdout=1|body")
	h.send(requestOf(7, "GET /", ""))
	h.expect(KindAnswer, 7, status(200)+"GET|/||")
	long := "GET /" + strings.Repeat("a", maxAddress-5)
	h.send(requestOf(8, long, strings.Repeat("b", MaxBody)))
	h.expect(KindAnswer, 8, status(200)+"GET|"+long[4:]+"||"+strings.Repeat("b", MaxBody))
}

// Each of these frames must end the session. The guest must decide at the header where it can, so that no byte of a
// forbidden payload is read.
func TestAFrameThatBreaksTheProtocolEndsTheSession(t *testing.T) {
	header := func(length uint32, kind byte, id uint32) []byte {
		b := append(binary.BigEndian.AppendUint32(nil, length), kind)
		return binary.BigEndian.AppendUint32(b, id)
	}
	for name, frame := range map[string][]byte{
		"a kind that nobody knows":      header(0, 6, 2),
		"a kind of the guest":           header(2, KindAnswer, 2),
		"the id 0":                      header(10, KindRequest, 0),
		"an id that was used":           requestOf(1, "GET /", ""),
		"a request that is too long":    header(2+maxAddress+MaxBody+1, KindRequest, 2),
		"a request without a head":      header(1, KindRequest, 2),
		"credit that is too short":      header(3, KindCredit, 1),
		"credit that is too long":       header(5, KindCredit, 1),
		"a cancel with a payload":       header(1, KindCancel, 1),
		"credit for the id 0":           frameOf(KindCredit, 0, "\x00\x01\x00\x00"),
		"credit before its request":     frameOf(KindCredit, 2, "\x00\x01\x00\x00"),
		"a cancel before its request":   frameOf(KindCancel, 2, ""),
		"a head longer than the frame":  frameOf(KindRequest, 2, "\x00\x06GET /"),
		"a head that is too long":       requestOf(2, "GET /"+strings.Repeat("a", maxAddress-4), ""),
		"a body that is too long":       requestOf(2, "GET /", strings.Repeat("a", MaxBody+1)),
		"a head without a path":         requestOf(2, "GET", ""),
		"a head without a method":       requestOf(2, " /", ""),
		"a method in small letters":     requestOf(2, "get /", ""),
		"a path that begins wrong":      requestOf(2, "GET jobs", ""),
		"a path with a space":           requestOf(2, "GET /a b", ""),
		"a path with a line break":      requestOf(2, "GET /a\n", ""),
		"a path that is not ASCII":      requestOf(2, "GET /\xc3\xa4", ""),
		"a head that is empty":          requestOf(2, "", "GET /"),
		"the length 0 of a request":     header(0, KindRequest, 2),
		"the largest length of a frame": header(1<<32-1, KindRequest, 2),
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, echo)
			h.send(requestOf(1, "GET /", ""))
			h.expect(KindAnswer, 1, status(200)+"GET|/||")
			_, _ = h.Write(frame) // fails if the session ends before the end of the frame
			h.expectEnd()
		})
	}
}

func TestCreditAndCancelOfACallThatIsOverAreIgnored(t *testing.T) {
	h := open(t, echo)
	h.send(requestOf(5, "GET /", ""))
	h.expect(KindAnswer, 5, status(200)+"GET|/||")
	for _, id := range []uint32{1, 5} { // the host skipped the id 1
		h.send(frameOf(KindCredit, id, "\x00\x01\x00\x00"), frameOf(KindCancel, id, ""))
	}
	h.send(requestOf(6, "GET /", ""))
	h.expect(KindAnswer, 6, status(200)+"GET|/||")
}

func TestACallThatTheHostCancelsIsBroken(t *testing.T) {
	canceled := make(chan struct{}, 2)
	h := open(t, func(c *Call) {
		<-c.Context().Done()
		c.Answer(200, []byte("late")) // must not be sent any more
		c.End(nil)
		canceled <- struct{}{}
	})
	h.send(requestOf(1, "POST /", ""), frameOf(KindCancel, 1, ""))
	h.expect(KindBroken, 1, "")
	<-canceled
	h.send(frameOf(KindCancel, 1, ""), requestOf(2, "GET /", ""), frameOf(KindCancel, 2, ""))
	h.expect(KindBroken, 2, "")
}

func TestACallThatItsHandlerGivesUpIsBroken(t *testing.T) {
	h := open(t, func(c *Call) {
		if c.Path == "/panic" {
			panic("on purpose")
		}
	})
	h.send(requestOf(1, "GET /", ""), requestOf(2, "GET /panic", ""))
	kinds := map[uint32]byte{}
	for range 2 {
		kind, id, _ := h.receive()
		kinds[id] = kind
	}
	if kinds[1] != KindBroken || kinds[2] != KindBroken {
		t.Error(kinds)
	}
}

func TestCallsAreHandledAtTheSameTimeUpToALimit(t *testing.T) {
	release := make(chan struct{})
	h := open(t, func(c *Call) {
		<-release
		c.Answer(204, nil)
	})
	for id := range uint32(maxCalls) {
		h.send(requestOf(id+1, "GET /", ""))
	}
	h.send(requestOf(maxCalls+1, "GET /", ""))
	h.expect(KindAnswer, maxCalls+1, status(500)+"too many")
	release <- struct{}{}
	kind, _, payload := h.receive()
	if kind != KindAnswer || payload != status(204) {
		t.Fatalf("%d %q", kind, payload)
	}
	h.send(requestOf(maxCalls+2, "GET /", "")) // there is room for one again
	close(release)
	for range maxCalls {
		if kind, _, payload := h.receive(); kind != KindAnswer || payload != status(204) {
			t.Fatalf("%d %q", kind, payload)
		}
	}
}

// A session may end while a stream waits for credit, or while it writes. In both cases its handler must return.
func TestTheEndOfASessionEndsItsCalls(t *testing.T) {
	ended := make(chan error, 2)
	h := open(t, func(c *Call) {
		source := bytes.NewReader(make([]byte, 1<<20))
		_ = c.Begin(200)
		if c.Path == "/waits" {
			<-c.Context().Done()
		}
		for offset := 0; ; {
			n, err := c.Output(Stdout, source, int64(offset))
			if offset += n; err != nil {
				ended <- err
				return
			}
		}
	})
	h.send(requestOf(1, "GET /waits", ""))
	h.expect(KindBegin, 1, status(200))
	h.send(requestOf(2, "GET /writes", ""))
	h.expect(KindBegin, 2, status(200))
	_ = h.Close()
	for range 2 {
		<-ended
	}
}

// A handler may ask for its context before or after the end of the session, or of its call.
func TestACallHearsOfItsEndBeforeAndAfter(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	h := open(t, func(c *Call) {
		if c.Path == "/over" {
			context := c.Context()
			c.Answer(200, nil)
			<-context.Done()
		} else {
			context, done := c.Context(), c.Done()
			begun <- struct{}{}
			<-context.Done()
			<-done
		}
		<-(&Call{isCut: true}).Context().Done()
		<-(&Call{isCut: true}).Done()
		ended <- struct{}{}
	})
	h.send(requestOf(1, "GET /over", ""))
	h.expect(KindAnswer, 1, status(200))
	<-ended
	h.send(requestOf(2, "GET /", ""), requestOf(3, "GET /", ""))
	<-begun
	<-begun
	_ = h.Close()
	<-ended
	<-ended
}
