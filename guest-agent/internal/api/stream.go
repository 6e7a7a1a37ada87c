// Sends the output of a job as a stream of frames with absolute offsets. So a host that lost its connection can
// continue at exactly the byte where it stopped.

package api

import (
	"errors"
	"time"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/frames"
	"sandbar/guest-agent/internal/jobs"
	"sandbar/guest-agent/internal/output"
)

// firstFlush is how long a stream waits for its job to end before it sends any output, so that all output of a short
// job and its end need one write.
const firstFlush = 3 * time.Millisecond

// nextFlush is the shortest time between two flushes of a stream, unless there is output for a full frame. So a job
// that prints line by line costs the host at most 200 pieces a second.
const nextFlush = 5 * time.Millisecond

// errStopped is why a stream ends without the end of its job: nobody wants it any more.
var errStopped = errors.New("the stream was stopped")

// outputStream sends the output of a job as the answer to one call.
type outputStream struct {
	call    *frames.Call
	job     *jobs.Job
	sources [2]source
}

// source is one of the two output streams of a job, with the offset of the next byte to send.
type source struct {
	stream frames.Stream
	buffer *output.Buffer
	offset int64
}

// pending reports how many bytes are there to be sent.
func (s *source) pending() int64 {
	_, end, _ := s.buffer.Extent()
	return end - s.offset
}

func streamOutput(c *frames.Call, status int, job *jobs.Job, from offsets) {
	s := &outputStream{call: c, job: job, sources: [2]source{
		{frames.Stdout, job.Stdout(), from.Stdout},
		{frames.Stderr, job.Stderr(), from.Stderr},
	}}
	if err := s.check(); err != nil {
		answerError(c, err)
		return
	}
	if c.Begin(status) != nil || s.run() != nil {
		return // the host hears that the call is broken
	}
	end := job.Status()
	c.End(end.JSON())
}

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

// run sends all output of the job until the job has ended. The last frames may not be flushed yet.
func (s *outputStream) run() error {
	s.gather(firstFlush)
	for {
		changed := s.job.Changed()
		ended := s.job.Ended()
		sent, blocked, err := s.sendAvailable()
		switch {
		case err != nil:
			return err
		case sent:
			continue
		case blocked:
			changed = nil // more output or the end of the job changes nothing until the host grants credit
		case ended:
			return nil
		}
		if err := s.call.Flush(); err != nil {
			return err
		}
		flushed := time.Now()
		select {
		case <-changed:
		case <-s.call.Granted():
			continue
		case <-s.call.Done():
			return errStopped
		case <-s.job.LetGo():
			return errStopped
		}
		if left := nextFlush - time.Since(flushed); left > 0 {
			s.gather(left)
		}
	}
}

// gather waits for patience, or until the job has ended or there is output for a full frame. So the output and the end
// of a short job are sent with a single write, and a job that prints small pieces needs few.
func (s *outputStream) gather(patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for !s.hasMuch() {
		changed := s.job.Changed()
		if s.job.Ended() {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-s.call.Done():
			return
		case <-s.job.LetGo():
			return
		}
	}
}

// hasMuch reports whether one of the streams has output for a full frame.
func (s *outputStream) hasMuch() bool {
	return s.sources[0].pending() >= frames.MaxOutput || s.sources[1].pending() >= frames.MaxOutput
}

// sendAvailable sends at most one frame of each source. blocked means that there is output but no credit for it.
func (s *outputStream) sendAvailable() (sent, blocked bool, err error) {
	for i := range s.sources {
		from := &s.sources[i]
		if from.pending() == 0 {
			continue
		}
		n, err := s.call.Output(from.stream, from.buffer, from.offset)
		if err != nil {
			return sent, blocked, err
		}
		from.offset += int64(n)
		sent = sent || n > 0
		blocked = blocked || n == 0
	}
	return sent, blocked, nil
}
