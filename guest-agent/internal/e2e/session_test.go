package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"

	"sandbar/guest-agent/internal/frames"
)

// grantSize is how many bytes of output a call receives before it grants as many again.
const grantSize = 64 << 10

var (
	errBroken   = errors.New("the guest broke the call off")
	errCanceled = errors.New("the call was canceled")
)

// session is the host's end of a session. The host ends it at the first frame that breaks the protocol.
type session struct {
	port *port
	echo []byte // the echo to wait for; nil after it has arrived. Only feed uses it
	seen []byte // received bytes that were not handled yet. Only feed uses it

	mu    sync.Mutex
	ended error
	last  uint32
	calls map[uint32]*response
}

// feed takes bytes from the port.
func (s *session) feed(b []byte) {
	s.seen = append(s.seen, b...)
	if s.echo != nil {
		at := bytes.Index(s.seen, s.echo)
		if at < 0 {
			return
		}
		s.seen = s.seen[at+len(s.echo):]
		s.echo = nil
	}
	for len(s.seen) >= 9 {
		size := 9 + int(binary.BigEndian.Uint32(s.seen))
		if len(s.seen) < size {
			return
		}
		if err := s.frame(s.seen[4], binary.BigEndian.Uint32(s.seen[5:]), bytes.Clone(s.seen[9:size])); err != nil {
			s.end(err)
			return
		}
		s.seen = s.seen[size:]
	}
}

// frame passes a frame to its call. A call stays known until its last frame.
func (s *session) frame(kind byte, id uint32, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.calls[id]
	if s.ended != nil || r == nil {
		return fmt.Errorf("a frame of kind %d of call %d, which is not open", kind, id)
	}
	f := frame{kind: kind, payload: payload}
	isLast := false
	switch kind {
	case frames.KindAnswer, frames.KindBegin:
		f.status, f.payload = int(binary.BigEndian.Uint16(payload)), payload[2:]
		isLast = kind == frames.KindAnswer
	case frames.KindStdout, frames.KindStderr:
		f.offset, f.payload = int64(binary.BigEndian.Uint64(payload)), payload[8:]
		r.credit -= len(payload)
		if r.credit < 0 || len(f.payload) == 0 || len(f.payload) > 64<<10 {
			return fmt.Errorf("%d bytes of output with %d bytes of credit left", len(f.payload), r.credit)
		}
	case frames.KindEnd, frames.KindBroken:
		isLast = true
	case frames.KindInputCredit:
		r.inputCredit += int(binary.BigEndian.Uint32(payload))
		r.arrived.Broadcast()
		return nil
	default:
		return fmt.Errorf("a frame of kind %d", kind)
	}
	if isLast {
		delete(s.calls, id)
	}
	r.queue = append(r.queue, f)
	r.arrived.Broadcast()
	return nil
}

// end ends all calls with err.
func (s *session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = err
	for _, r := range s.calls {
		r.failed = err
		r.arrived.Broadcast()
	}
}

func (s *session) request(head string, body []byte) (*response, error) {
	payload := binary.BigEndian.AppendUint16(nil, uint16(len(head)))
	payload = append(append(payload, head...), body...)
	s.port.writing.Lock() // before an id is chosen, so that the ids are sent in their order
	defer s.port.writing.Unlock()
	s.mu.Lock()
	if s.ended != nil {
		s.mu.Unlock()
		return nil, s.ended
	}
	s.last++
	r := &response{session: s, id: s.last, credit: frames.StartCredit, inputCredit: frames.StartInput}
	r.arrived.L = &s.mu
	s.calls[r.id] = r
	s.mu.Unlock()
	return r, s.write(frames.KindRequest, r.id, payload)
}

// send sends a frame, unless the session has ended.
func (s *session) send(kind byte, id uint32, payload []byte) error {
	s.port.writing.Lock()
	defer s.port.writing.Unlock()
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended != nil {
		return net.ErrClosed
	}
	return s.write(kind, id, payload)
}

func (s *session) write(kind byte, id uint32, payload []byte) error {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, id)
	_, err := s.port.Conn.Write(append(b, payload...))
	return err
}

type frame struct {
	kind    byte
	status  int
	offset  int64
	payload []byte
}

// response is the answer to a request. If it is a stream, next returns its frames.
type response struct {
	code int
	body []byte // empty if the answer is a stream

	session *session
	id      uint32

	// Guarded by the mutex of the session.
	arrived sync.Cond
	queue   []frame
	failed  error
	credit  int // bytes of output that the guest may still send
	taken   int // bytes of output that were taken and not granted again

	inputCredit int // bytes of input that the guest accepts
}

// next waits for the next frame of the call and returns it. If the frame is output, the guest may send as much again.
func (r *response) next() (frame, error) {
	s := r.session
	s.mu.Lock()
	for len(r.queue) == 0 && r.failed == nil {
		r.arrived.Wait()
	}
	if r.failed != nil {
		s.mu.Unlock()
		return frame{}, r.failed
	}
	f := r.queue[0]
	r.queue = r.queue[1:]
	grant := 0
	switch f.kind {
	case frames.KindBroken:
		r.failed = errBroken
	case frames.KindStdout, frames.KindStderr:
		if r.taken += 8 + len(f.payload); r.taken >= grantSize {
			grant, r.taken = r.taken, 0
			r.credit += grant
		}
	}
	failed := r.failed
	s.mu.Unlock()
	if grant > 0 {
		_ = s.send(frames.KindCredit, r.id, binary.BigEndian.AppendUint32(nil, uint32(grant))) // fails if the session ended
	}
	return f, failed
}

// output returns the next frame of output.
func (r *response) output() (frame, error) {
	f, err := r.next()
	if err == nil && f.kind != frames.KindStdout && f.kind != frames.KindStderr {
		err = fmt.Errorf("a frame of kind %d", f.kind)
	}
	return f, err
}

// cancel tells the guest that nobody wants more of this call.
func (r *response) cancel() {
	r.session.mu.Lock()
	isOpen := r.session.calls[r.id] != nil && r.failed == nil
	if isOpen {
		r.failed = errCanceled
		r.arrived.Broadcast()
	}
	r.session.mu.Unlock()
	if isOpen {
		_ = r.session.send(frames.KindCancel, r.id, nil) // fails if the session ended
	}
}
