// The standard input of a job that was started with stdin_open. The host appends to it by offset, so a request that is
// sent twice is written once: the agent counts the bytes that the pipe has accepted, for the life of the job.
//
//	open --host closes it--------------------> closed
//	  |----command closes its end (EPIPE)----> broken
//	  '----job ends, or the machine lets go--> over
//
// The agent keeps only the first bytes of a job in memory. A later request writes to the pipe. When the pipe is
// full, the request waits until the command reads. The answer tells the host how many bytes the pipe has accepted.

package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

type inputState int

const (
	inputOpen inputState = iota
	inputClosed
	inputBroken
	inputOver
)

type input struct {
	turn chan struct{} // has one element while a request writes to the pipe, so that requests write one after another

	mu       sync.Mutex
	state    inputState
	accepted int64    // bytes that the pipe has taken, with the first bytes of the job
	pipe     *os.File // its write end, in non-blocking mode; nil before open
}

// InputProgress tells the host how far the standard input of a job is.
type InputProgress struct {
	NextOffset int64 `json:"next_offset"`
	Closed     bool  `json:"closed"` // no more bytes will be accepted
}

// newInput returns the input of a job whose request brings its first bytes. They count as accepted, because the request
// is never repeated for the same job.
func newInput(first []byte) *input {
	return &input{turn: make(chan struct{}, 1), accepted: int64(len(first))}
}

// open makes the pipe and returns its read end. A goroutine writes the first bytes, and other requests wait for it.
func (in *input) open(first []byte) (*os.File, error) {
	reader, writer, err := makeInputPipe()
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	in.pipe = writer
	in.mu.Unlock()
	if len(first) > 0 {
		in.turn <- struct{}{}
		go func() {
			defer func() { <-in.turn }()
			_, _ = writer.Write(first) // fails when nobody can read any more, and then the next request fails too
		}()
	}
	return reader, nil
}

// append writes data to the pipe, from the offset on. It skips the bytes that were accepted before, and fails if some
// are missing before the offset. It returns when the pipe has taken all bytes, or when ctx ends. If all bytes were
// accepted and last is true, it closes the input.
func (in *input) append(ctx context.Context, offset int64, data []byte, last bool) (InputProgress, error) {
	end := offset + int64(len(data))
	if now := in.progress(); end <= now.NextOffset && (!last || now.Closed) {
		return now, nil // a repetition
	}
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	default:
		select {
		case in.turn <- struct{}{}:
			defer func() { <-in.turn }()
		case <-ctx.Done():
			now := in.progress()
			return now, checkGap(offset, now.NextOffset)
		}
	}
	now := in.progress()
	if err := checkGap(offset, now.NextOffset); err != nil {
		return now, err
	}
	if end > now.NextOffset {
		if err := in.write(ctx, data[now.NextOffset-offset:]); err != nil {
			return now, err
		}
	}
	if last && in.progress().NextOffset >= end {
		in.leave(inputClosed)
	}
	return in.progress(), nil
}

func checkGap(offset, accepted int64) error {
	if offset <= accepted {
		return nil
	}
	return fault.New(fault.Conflict, fmt.Sprintf(
		"offset %d leaves a gap in the standard input: the next byte that the job takes is at %d", offset, accepted))
}

// write writes as many bytes as the pipe takes until ctx ends. The caller has the turn.
func (in *input) write(ctx context.Context, data []byte) error {
	if err := in.refusal(); err != nil {
		return err
	}
	raw, err := in.pipe.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	attempt := func(fd uintptr) bool {
		for len(data) > 0 {
			n, err := unix.Write(int(fd), data)
			switch {
			case err == unix.EINTR:
				continue
			case err == unix.EAGAIN:
				return false
			case err != nil:
				failure = err
				return true
			}
			data = data[n:]
			in.accept(n)
		}
		return true
	}
	// The first attempt does not wait, so that it also takes place when ctx has ended already.
	_ = in.pipe.SetWriteDeadline(time.Time{})
	err = raw.Write(func(fd uintptr) bool { attempt(fd); return true })
	if err == nil && failure == nil && len(data) > 0 {
		resume := interrupt(ctx, in.pipe)
		err = raw.Write(attempt)
		resume()
	}
	if failure == syscall.EPIPE {
		in.leave(inputBroken)
	}
	if len(data) == 0 {
		return nil
	}
	switch refusal := in.refusal(); {
	case refusal != nil: // perhaps because the pipe was closed meanwhile
		return refusal
	case failure != nil:
		return failure
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	}
	return err
}

// interrupt makes a waiting write to the pipe return when ctx ends. The returned function calls that off: after it has
// returned, the deadline of the pipe does not change any more.
func interrupt(ctx context.Context, pipe *os.File) (resume func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = pipe.SetWriteDeadline(time.Unix(1, 0)) // fails only if the pipe is closed, and then nobody waits
		close(done)
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

func (in *input) accept(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.accepted += int64(n)
}

func (in *input) progress() InputProgress {
	in.mu.Lock()
	defer in.mu.Unlock()
	return InputProgress{NextOffset: in.accepted, Closed: in.state != inputOpen}
}

// refusal returns why no more bytes are accepted, or nil.
func (in *input) refusal() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch in.state {
	case inputClosed:
		return fault.New(fault.Conflict, fmt.Sprintf("the standard input was closed at byte %d", in.accepted))
	case inputBroken:
		return fault.New(fault.Conflict, "the command has closed its standard input")
	case inputOver:
		return fault.New(fault.Conflict, "the job has ended")
	}
	return nil
}

// leave closes the pipe and records state as the reason. A request that waits for the command to read then returns.
// Only the first reason is kept, except that inputOver replaces it.
func (in *input) leave(state inputState) {
	in.mu.Lock()
	pipe := in.pipe
	isFirst := in.state == inputOpen
	if isFirst || state == inputOver {
		in.state = state
	}
	in.mu.Unlock()
	// Without the lock, because Close waits for a write that is under way, which counts what it wrote.
	if isFirst && pipe != nil {
		_ = pipe.Close() // a pipe has nothing to write back that could fail
	}
}
