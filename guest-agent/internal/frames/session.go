package frames

import (
	"encoding/binary"
	"io"
	"maps"
	"slices"
	"sync"

	"sandbar/guest-agent/internal/workers"
)

// Listener returns the sessions that the host starts. At most one of them is alive.
type Listener interface {
	Accept() (io.ReadWriteCloser, error)
}

// Handler handles one call. If it returns before it has ended the call, the host hears that the call is broken.
type Handler func(*Call)

// Serve serves all sessions of the listener until the listener fails, and returns that error. It sets no time limits,
// because the host may pause the machine at any point and resume it a week later. refuse answers each call beyond
// maxCalls; it must not wait.
func Serve(listener Listener, handle, refuse Handler) error {
	for {
		stream, err := listener.Accept()
		if err != nil {
			return err
		}
		workers.Go(func() { serve(stream, handle, refuse) })
	}
}

// session is the state of one session. A goroutine reads its frames, and each call runs on another one.
type session struct {
	stream  io.ReadWriteCloser
	writing sync.Mutex // held during a write, so that no frame is cut by another
	last    uint32     // id of the last request. Only the reader uses it

	mu    sync.Mutex
	calls map[uint32]*Call // the open calls
}

// serve reads frames until the session ends or the host breaks the protocol. It cancels the calls that are open then.
func serve(stream io.ReadWriteCloser, handle, refuse Handler) {
	s := &session{stream: stream, calls: make(map[uint32]*Call)}
	defer s.cutAll()
	defer stream.Close()
	var space [headerSize]byte
	for {
		h, err := readHeader(stream, &space)
		if err != nil {
			return
		}
		switch h.kind {
		case KindRequest:
			err = s.request(h, handle, refuse)
		case KindCredit:
			err = s.credit(h)
		case KindCancel:
			err = s.cancel(h)
		case KindInput:
			err = s.input(h)
		case KindInputEnd:
			err = s.inputEnd(h)
		}
		if err != nil {
			return
		}
	}
}

// request starts the call of a request frame. The reader itself refuses a call beyond maxCalls: if the host
// does not read the refusal, the reader waits and reads no further request.
func (s *session) request(h header, handle, refuse Handler) error {
	if h.id <= s.last {
		return errFrame
	}
	s.last = h.id
	payload := make([]byte, h.length)
	if _, err := io.ReadFull(s.stream, payload); err != nil {
		return err
	}
	call := &Call{session: s, id: h.id, credit: StartCredit, granted: make(chan struct{}, 1)}
	if err := call.parseRequest(payload); err != nil {
		return err
	}
	s.mu.Lock()
	tooMany := len(s.calls) >= maxCalls
	s.calls[h.id] = call
	s.mu.Unlock()
	if tooMany {
		call.serve(refuse)
		return nil
	}
	workers.Go(func() { call.serve(handle) })
	return nil
}

// find returns the open call with this id, or nil if the call is over. It returns an error if there was no such call.
func (s *session) find(id uint32) (*Call, error) {
	if id > s.last {
		return nil, errFrame
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[id], nil
}

func (s *session) credit(h header) error {
	var payload [creditSize]byte
	if _, err := io.ReadFull(s.stream, payload[:]); err != nil {
		return err
	}
	call, err := s.find(h.id)
	if call != nil {
		call.grant(binary.BigEndian.Uint32(payload[:]))
	}
	return err
}

func (s *session) cancel(h header) error {
	call, err := s.find(h.id)
	if call != nil {
		call.cut()
	}
	return err
}

// input passes a frame of input to its call. If the call is over, it reads the frame and drops it.
func (s *session) input(h header) error {
	in, err := s.findInput(h.id)
	if err != nil {
		return err
	}
	if in == nil {
		_, err := io.CopyN(io.Discard, s.stream, int64(h.length))
		return err
	}
	return in.receive(s.stream, h.length)
}

func (s *session) inputEnd(h header) error {
	in, err := s.findInput(h.id)
	if in == nil || err != nil {
		return err
	}
	return in.end()
}

// findInput returns where the input of an open call goes, or nil if the call is over. It returns an error if there was
// no such call, or if the call takes no input now.
func (s *session) findInput(id uint32) (*input, error) {
	call, err := s.find(id)
	if call == nil || err != nil {
		return nil, err
	}
	call.mu.Lock()
	defer call.mu.Unlock()
	if call.duplex == nil {
		return nil, errFrame
	}
	return call.duplex.input, nil
}

// cutAll cancels the open calls of a session that has ended. The session reads no more frames, so no call is added
// meanwhile.
func (s *session) cutAll() {
	s.mu.Lock()
	open := slices.Collect(maps.Values(s.calls))
	s.mu.Unlock()
	for _, call := range open {
		call.cut()
	}
}

// close removes an ended call, so that the host may start another one as soon as it has the last frame.
func (s *session) close(c *Call) {
	s.mu.Lock()
	delete(s.calls, c.id)
	s.mu.Unlock()
	c.cut()
}

// write sends whole frames.
func (s *session) write(frames []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.stream.Write(frames)
	return err
}
