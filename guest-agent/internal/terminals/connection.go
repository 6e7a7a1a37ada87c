package terminals

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/fault"
)

const (
	// pieceSize is how many bytes of output are sent at once. A connection that takes one piece in the time that
	// Config.Stall allows is slow, but not stalled.
	pieceSize = 16 << 10
	// inputSize is how many bytes of input are passed on at once.
	inputSize = 2 << 10
)

// pieces holds buffers for output. A connection borrows one only while it sends.
var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// connection is one client that is connected to a terminal.
type connection struct {
	position int64         // offset of the next byte of output for it. Locked by the terminal
	wake     chan struct{} // there is more output, or the terminal has ended
}

var (
	errStalled = fault.New(fault.Conflict, "the connection did not take the output of the terminal; connect again to go on")
	// errComplete ends a connection that has got all output of an ended terminal.
	errComplete = errors.New("the terminal has ended")
)

// attachHead is the head of the stream of a connection.
type attachHead struct {
	Offset int64 `json:"offset"` // of the first byte of output that follows
	size
}

// join adds a connection. Its output begins at the offset if the ring holds that, else at the oldest byte of the ring.
func (t *terminal) join(offset *int64) (*connection, attachHead, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isReleased {
		return nil, attachHead{}, errAbsent
	}
	c := &connection{position: t.output.begin, wake: make(chan struct{}, 1)}
	if offset != nil && *offset >= t.output.begin && *offset <= t.output.end {
		c.position = *offset
	}
	t.connections[c] = struct{}{}
	t.idleTimer.Stop()
	t.prodPump()
	return c, attachHead{c.position, t.size}, nil
}

// leave removes a connection. When the last one leaves, the time of idleness begins.
func (t *terminal) leave(c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.connections, c)
	if len(t.connections) == 0 && t.result == nil && !t.isReleased {
		t.idleTimer.Reset(t.idle)
	}
	t.prodPump()
}

// wakeConnections tells every connection about a change. The caller holds t.mu.
func (t *terminal) wakeConnections() {
	for c := range t.connections {
		signal(c.wake)
	}
}

// serve carries bytes between the terminal and a connection. It returns the result of the terminal when the connection
// has got all output, or an error when the connection is cut, stalls for the given time, or the terminal is let go.
func (t *terminal) serve(ctx context.Context, c *connection, conn calls.Conn, stall time.Duration) (*result, error) {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	go func() {
		if err := t.takeInput(ctx, conn); err != nil {
			cut(err)
		}
	}()
	go func() {
		stalled := time.AfterFunc(stall, func() { cut(errStalled) })
		stalled.Stop()
		cut(t.sendOutput(ctx, c, conn, func(sending bool) {
			if sending {
				stalled.Reset(stall)
			} else {
				stalled.Stop()
			}
		}))
	}()
	select {
	case <-ctx.Done():
	case <-t.letGo:
		return nil, errAbsent
	}
	if err := context.Cause(ctx); err != errComplete {
		return nil, err
	}
	return t.result, nil
}

// sendOutput sends the output from the position of the connection on. It returns errComplete at the end of all output.
// It calls watch before and after it sends.
func (t *terminal) sendOutput(ctx context.Context, c *connection, conn io.Writer, watch func(sending bool)) error {
	for {
		sent, err := t.sendPiece(c, conn, watch)
		if err != nil {
			return err
		}
		if sent {
			continue
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendPiece sends the next piece of output, if there is any, and then moves the position of the connection.
func (t *terminal) sendPiece(c *connection, conn io.Writer, watch func(sending bool)) (sent bool, err error) {
	piece := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(piece)
	t.mu.Lock()
	if t.isReleased {
		t.mu.Unlock()
		return false, errAbsent
	}
	n := t.output.read(piece[:], c.position)
	hasEnded := t.result != nil
	t.mu.Unlock()
	if n == 0 {
		if hasEnded {
			err = errComplete
		}
		return false, err
	}
	watch(true)
	_, err = conn.Write(piece[:n])
	watch(false)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	c.position += int64(n)
	t.mu.Unlock()
	t.prodPump()
	return true, nil
}

// takeInput passes what the client types to the terminal. It returns nil when no more can be typed, because the client
// has ended its direction or the terminal has ended; the output goes on. It returns an error when the connection is cut.
func (t *terminal) takeInput(ctx context.Context, conn io.Reader) error {
	space := make([]byte, inputSize)
	for {
		n, err := conn.Read(space)
		if n > 0 && t.enter(ctx, space[:n]) != nil {
			return nil
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// enter writes input to the terminal. It waits while the programs do not read, but not longer than ctx. Several
// connections may type at once; the input of one call stays together.
func (t *terminal) enter(ctx context.Context, data []byte) error {
	if t.pty == nil {
		return errComplete
	}
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.turn }()
	t.isTyped.Store(true)
	t.prodPump()
	return t.pty.write(ctx, data)
}
