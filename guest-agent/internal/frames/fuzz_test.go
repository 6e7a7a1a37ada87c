package frames

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The fuzzer sends any bytes as a session. The guest must not panic. It must send whole frames, only for calls that
// were started, within their credit, and end each call exactly once.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(requestOf(1, "GET /jobs", "x"), false)
	f.Add(slices.Concat(requestOf(1, "PUT /o?stdout=1", ""), frameOf(KindCredit, 1, "\x00\x01\x00\x00"), frameOf(KindCancel, 1, "")), true)
	f.Add(slices.Concat(requestOf(1, "GET /a", ""), requestOf(2, "GET /a", ""), requestOf(2, "GET /a", "")), true)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 1}, true)
	content := printed(strings.Repeat("x", 600<<10))
	f.Fuzz(func(t *testing.T, received []byte, streams bool) {
		guest := &recorder{in: received}
		guest.sent.L = &guest.mu
		handle := echo
		if streams {
			handle = func(c *Call) {
				_ = c.Begin(200)
				for n, offset := 1, 0; n > 0; offset += n {
					n, _ = c.Output(Stdout, content, int64(offset))
				}
				c.End(nil)
			}
		}
		serve(guest, handle, refuse)
		calls := callsOf(received)
		for _, call := range calls {
			guest.await(call)
		}
		guest.check(t, calls)
	})
}

// call is what the host has sent about a call.
type call struct {
	id     uint32
	credit int
}

// callsOf returns the calls that the guest must have started: those before the first frame that breaks the protocol.
func callsOf(received []byte) (calls []*call) {
	last := uint32(0)
	for len(received) >= headerSize {
		length, kind, id := binary.BigEndian.Uint32(received), received[4], binary.BigEndian.Uint32(received[5:])
		received = received[headerSize:]
		if id == 0 || !fits(kind, length) || int(length) > len(received) || (kind == KindRequest) != (id > last) {
			return calls
		}
		payload := received[:length]
		received = received[length:]
		switch kind {
		case KindRequest:
			if new(Call).parseRequest(payload) != nil {
				return calls
			}
			last = id
			calls = append(calls, &call{id: id, credit: StartCredit})
		case KindCredit:
			for _, call := range calls {
				if call.id == id {
					call.credit += int(binary.BigEndian.Uint32(payload))
				}
			}
		}
	}
	return calls
}

// recorder is a session that has received in, and records what it sends.
type recorder struct {
	in []byte

	mu   sync.Mutex
	sent sync.Cond
	out  []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	if len(r.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.in)
	r.in = r.in[n:]
	return n, nil
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out = append(r.out, b...)
	r.sent.Broadcast()
	return len(b), nil
}

func (r *recorder) Close() error { return nil }

// await waits for the last frame of the call.
func (r *recorder) await(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !slices.ContainsFunc(split(r.out), func(f sentFrame) bool { return f.id == c.id && f.isLast() }) {
		r.sent.Wait()
	}
}

type sentFrame struct {
	kind    byte
	id      uint32
	payload []byte
}

func (f sentFrame) isLast() bool {
	return f.kind == KindAnswer || f.kind == KindEnd || f.kind == KindBroken
}

// split returns the frames of a stream. A cut frame gets the kind 0.
func split(stream []byte) (frames []sentFrame) {
	for len(stream) > 0 {
		if len(stream) < headerSize || len(stream)-headerSize < int(binary.BigEndian.Uint32(stream)) {
			return append(frames, sentFrame{})
		}
		size := headerSize + int(binary.BigEndian.Uint32(stream))
		frames = append(frames, sentFrame{stream[4], binary.BigEndian.Uint32(stream[5:]), stream[headerSize:size]})
		stream = stream[size:]
	}
	return frames
}

func (r *recorder) check(t *testing.T, calls []*call) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	open := map[uint32]*call{}
	for _, call := range calls {
		open[call.id] = call
	}
	for _, frame := range split(r.out) {
		call := open[frame.id]
		if call == nil {
			t.Fatalf("a frame of kind %d of the call %d, which is not open", frame.kind, frame.id)
		}
		switch frame.kind {
		case KindBegin:
		case KindStdout:
			call.credit -= len(frame.payload)
			size := len(frame.payload) - offsetSize
			if call.credit < 0 || size < 1 || size > MaxOutput || bytes.Count(frame.payload[offsetSize:], []byte("x")) != size {
				t.Fatalf("%d bytes of output, %d bytes of credit left", size, call.credit)
			}
		default:
			if !frame.isLast() {
				t.Fatalf("a frame of kind %d", frame.kind)
			}
			delete(open, frame.id)
		}
	}
}

// The fuzzer sends any bytes as a session of two-way streams. The guest must not panic, and it must send whole frames.
// Which calls it starts depends on when input arrives, so this is not checked.
func FuzzInput(f *testing.F) {
	f.Add(slices.Concat(requestOf(1, "POST /s", ""), frameOf(KindInput, 1, "x"), frameOf(KindInputEnd, 1, "")))
	f.Add(slices.Concat(requestOf(1, "POST /s", ""), frameOf(KindInput, 1, "x"), frameOf(KindCancel, 1, ""), frameOf(KindInput, 1, "y")))
	f.Fuzz(func(t *testing.T, received []byte) {
		guest := &recorder{in: received}
		guest.sent.L = &guest.mu
		var handlers sync.WaitGroup
		serve(guest, func(c *Call) {
			handlers.Add(1)
			defer handlers.Done()
			duplexOf(func(d *Duplex) error {
				_, err := io.Copy(d, d)
				return err
			})(c)
		}, refuse)
		handlers.Wait()
		guest.mu.Lock()
		defer guest.mu.Unlock()
		for _, frame := range split(guest.out) {
			if frame.kind == 0 {
				t.Fatal("a cut frame")
			}
		}
	})
}
