// A session is one connection between host and guest. It ends when the next session starts, even while handlers still
// use it. A session has no time limits, because the machine may be paused for days in a read.

package channel

import (
	"io"
	"sync"
	"sync/atomic"
)

// maxPending is how many received but unread bytes a session may have. A session with more is ended, because the reader
// of the port must never wait for a session. The one who reads a session takes the bytes as fast as they come, unless the
// host also refuses to read answers.
const maxPending = 16 << 20

type session struct {
	channel *Channel
	ended   atomic.Bool

	mu      sync.Mutex
	arrived sync.Cond
	pending []byte
	taken   int // bytes at the front of pending that Read has handed out
}

func newSession(channel *Channel) *session {
	s := &session{channel: channel}
	s.arrived.L = &s.mu
	return s
}

// feed adds received bytes for Read. If too many bytes are unread, it ends the session.
func (s *session) feed(data []byte) {
	s.mu.Lock()
	overflow := len(s.pending)-s.taken+len(data) > maxPending
	if !overflow && !s.ended.Load() {
		if s.taken > 0 && len(s.pending)+len(data) > cap(s.pending) {
			s.pending = s.pending[:copy(s.pending, s.pending[s.taken:])]
			s.taken = 0
		}
		s.pending = append(s.pending, data...)
		s.arrived.Signal()
	}
	s.mu.Unlock()
	if overflow {
		s.end()
	}
}

// end makes every later Read and Write fail. It does not wait for a Write that is in progress.
func (s *session) end() {
	s.mu.Lock()
	s.ended.Store(true)
	s.pending, s.taken = nil, 0
	s.arrived.Broadcast()
	s.mu.Unlock()
}

func (s *session) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.taken == len(s.pending) {
		if s.ended.Load() {
			return 0, io.EOF
		}
		s.arrived.Wait()
	}
	n := copy(b, s.pending[s.taken:])
	s.taken += n
	if s.taken == len(s.pending) {
		s.release()
	}
	return n, nil
}

// release empties the buffer. It frees a buffer of more than 256 KiB, which a burst of data has made so large.
func (s *session) release() {
	s.taken = 0
	if cap(s.pending) > 256<<10 {
		s.pending = nil
		return
	}
	s.pending = s.pending[:0]
}

func (s *session) Write(b []byte) (int, error) {
	return s.channel.write(s, b)
}

func (s *session) Close() error {
	s.end()
	return nil
}
