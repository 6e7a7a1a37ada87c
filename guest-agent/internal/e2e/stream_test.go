package e2e

import (
	"encoding/json"
	"fmt"
	"io"

	"sandbar/guest-agent/internal/frames"
)

// guestCall makes a guest call and decodes its answer, if answer is not nil.
func (h *host) guestCall(name string, params, answer any) {
	h.t.Helper()
	content := h.expect(200, "POST", "/calls/"+name, params)
	if answer == nil {
		return
	}
	if err := json.Unmarshal([]byte(content), answer); err != nil {
		h.t.Fatalf("%s: %v", name, err)
	}
}

// stream is an open guest stream. One goroutine may read while another writes.
type stream struct {
	*response
	offset int64  // of the next byte from the guest
	rest   []byte // received bytes that were not read yet
	end    []byte // the last message of the stream; nil before the end
}

// guestStream opens a guest stream and decodes its head, if head is not nil.
func (h *host) guestStream(name string, params, head any) *stream {
	h.t.Helper()
	s, err := h.tryStream(name, params, head)
	if err != nil {
		h.t.Fatalf("%s: %v", name, err)
	}
	return s
}

func (h *host) tryStream(name string, params, head any) (*stream, error) {
	h.t.Helper()
	r := h.send(h.t.Context(), "POST", "/streams/"+name, params)
	if r.code != 200 {
		return nil, fmt.Errorf("%d %s", r.code, r.body)
	}
	if head != nil {
		if err := json.Unmarshal(r.body, head); err != nil {
			return nil, err
		}
	}
	return &stream{response: r}, nil
}

// Read returns bytes from the guest, and io.EOF when the stream has ended with its last message.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.end != nil {
			return 0, io.EOF
		}
		f, err := s.next()
		switch {
		case err != nil:
			return 0, err
		case f.kind == frames.KindEnd:
			s.end = f.payload
		case f.kind != frames.KindStdout || f.offset != s.offset:
			return 0, fmt.Errorf("a frame of kind %d at %d, want %d", f.kind, f.offset, s.offset)
		default:
			s.offset += int64(len(f.payload))
			s.rest = f.payload
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Write sends bytes to the guest. It waits until the guest accepts them.
func (s *stream) Write(p []byte) (sent int, err error) {
	for sent < len(p) {
		n, err := s.spend(len(p) - sent)
		if err != nil {
			return sent, err
		}
		if err := s.session.send(frames.KindInput, s.id, p[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// spend waits until the guest accepts input, and returns how many of the wanted bytes.
func (s *stream) spend(wanted int) (int, error) {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	for s.inputCredit == 0 && s.failed == nil {
		s.arrived.Wait()
	}
	n := min(wanted, s.inputCredit, frames.MaxInput)
	s.inputCredit -= n
	return n, s.failed
}
