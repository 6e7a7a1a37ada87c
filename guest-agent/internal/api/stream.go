// Sends the output of a job as a stream of frames with absolute offsets. So a host that lost its connection can
// continue at exactly the byte where it stopped.

package api

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/jobs"
	"sandbar/guest-agent/internal/output"
)

// A frame is a header (type u8, three zero bytes, payload length u32 and payload offset u64, both big-endian) and
// its payload.
const (
	headerSize = 16
	maxPayload = 64 << 10

	frameStdout = 1
	frameStderr = 2
	frameEnd    = 3
)

// firstFlush is how long a stream waits for its job to end before it sends anything, so that a short job needs one
// write.
const firstFlush = 3 * time.Millisecond

// nextFlush is the shortest time between two flushes of a stream, unless there is output for a full frame. The host
// treats thousands of pieces a second as a flood, so a job that prints line by line sends at most 200 a second.
const nextFlush = 5 * time.Millisecond

// frames is a pool of buffers for one frame each. A stream takes a buffer only while it sends, so that idle streams
// need no memory.
var frames = sync.Pool{New: func() any { return new([headerSize + maxPayload]byte) }}

// outputStream sends the output of a job as the body of one HTTP response.
type outputStream struct {
	w       http.ResponseWriter
	job     *jobs.Job
	sources [2]source
}

// source is one of the two output streams of a job, with the offset of the next byte to send.
type source struct {
	frame  byte
	buffer *output.Buffer
	offset int64
}

func streamOutput(w http.ResponseWriter, r *http.Request, status int, job *jobs.Job, from offsets) {
	s := &outputStream{w: w, job: job, sources: [2]source{
		{frameStdout, job.Stdout(), from.Stdout},
		{frameStderr, job.Stderr(), from.Stderr},
	}}
	if err := s.check(); err != nil {
		answerError(w, err)
		return
	}
	w.Header()["Content-Type"] = streamType
	w.WriteHeader(status)
	if !s.run(r.Context().Done()) {
		panic(http.ErrAbortHandler) // resets the HTTP/2 stream, so that the host does not take it for complete
	}
}

var streamType = []string{"application/octet-stream"}

// check returns an error when an offset is below the acknowledged bytes or past the end.
func (s *outputStream) check() error {
	for i := range s.sources {
		base, end, _ := s.sources[i].buffer.Extent()
		if s.sources[i].offset < base {
			return fault.New(fault.Conflict, output.ErrAcknowledged.Error())
		}
		if s.sources[i].offset > end {
			return fault.New(fault.Validation, output.ErrAhead.Error())
		}
	}
	return nil
}

// run sends all output and then the end frame. It reports whether it has sent the end frame.
func (s *outputStream) run(gone <-chan struct{}) bool {
	flusher := http.NewResponseController(s.w)
	s.gather(firstFlush, gone)
	for {
		changed := s.job.Changed()
		ended := s.job.Ended()
		sent, err := s.sendAvailable()
		switch {
		case err != nil:
			return false
		case sent:
			continue
		case ended:
			return s.sendEnd() == nil
		}
		if flusher.Flush() != nil {
			return false
		}
		flushed := time.Now()
		select {
		case <-changed:
		case <-gone:
			return false
		case <-s.job.LetGo():
			return false
		}
		if left := nextFlush - time.Since(flushed); left > 0 {
			s.gather(left, gone)
		}
	}
}

// gather waits for patience, or until the job has ended or there is output for a full frame. So a short job is answered
// with a single write, and a job that prints small pieces with few.
func (s *outputStream) gather(patience time.Duration, gone <-chan struct{}) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for !s.job.Ended() && !s.hasMuch() {
		changed := s.job.Changed()
		if s.job.Ended() {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-gone:
			return
		case <-s.job.LetGo():
			return
		}
	}
}

// hasMuch reports whether one of the streams has output for a full frame.
func (s *outputStream) hasMuch() bool {
	for i := range s.sources {
		if _, end, _ := s.sources[i].buffer.Extent(); end-s.sources[i].offset >= maxPayload {
			return true
		}
	}
	return false
}

// sendAvailable sends at most one frame of each source.
func (s *outputStream) sendAvailable() (sent bool, err error) {
	space := frames.Get().(*[headerSize + maxPayload]byte)
	defer frames.Put(space)
	for i := range s.sources {
		from := &s.sources[i]
		n, err := from.buffer.ReadAt(space[headerSize:], from.offset)
		if err != nil {
			return sent, err
		}
		if n == 0 {
			continue
		}
		putHeader(space[:], from.frame, n, from.offset)
		if _, err := s.w.Write(space[:headerSize+n]); err != nil {
			return sent, err
		}
		from.offset += int64(n)
		sent = true
	}
	return sent, nil
}

func (s *outputStream) sendEnd() error {
	status, err := json.Marshal(s.job.Status())
	if err != nil {
		return err
	}
	frame := make([]byte, headerSize, headerSize+len(status))
	putHeader(frame, frameEnd, len(status), 0)
	_, err = s.w.Write(append(frame, status...))
	return err
}

func putHeader(frame []byte, kind byte, length int, offset int64) {
	clear(frame[:4])
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[4:], uint32(length))
	binary.BigEndian.PutUint64(frame[8:], uint64(offset))
}
