package frames

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"sandbar/guest-agent/internal/console"
)

// ErrOver means that the handler can send no more output, because the host has canceled the call or the session has
// ended.
var ErrOver = errors.New("the call is over")

// Call is one request of the host and the way to answer it. Only the goroutine of its handler may use it. A handler
// either calls Answer, or Begin, Output and Flush as often as it needs, and End, or BeginDuplex and End.
type Call struct {
	Method string
	Path   string
	Query  string // without the question mark
	Body   []byte // nil after Begin

	session *session
	id      uint32
	isOver  bool // the last frame was sent

	ready *batch // frames that were not sent yet; nil: none

	mu      sync.Mutex
	credit  int64 // bytes of output, with their offsets, that may be sent
	granted chan struct{}
	duplex  *Duplex // nil unless the call is a two-way stream
	isCut   bool    // the host has canceled the call, the session has ended, or the call is over

	// Few calls need the context or done, so the first use makes them.
	context context.Context // nil before the first use
	cancel  func()
	done    chan struct{} // closed when the call is cut; nil before the first use
}

// batchSize is how many bytes of frames a call collects before it sends them.
const batchSize = 64 << 10

// batch holds the frames that a call has collected: less than batchSize bytes, then at most one frame more.
type batch struct {
	length int
	bytes  [batchSize + headerSize + offsetSize + MaxOutput]byte
}

// batches is a pool, so that a stream that waits for output needs no memory for it.
var batches = sync.Pool{New: func() any { return new(batch) }}

// Source is where Output takes bytes from. ReadAt returns 0 and no error if there are none at the offset yet.
type Source interface {
	ReadAt(p []byte, offset int64) (int, error)
}

// Stream says which of the two output streams of a job a frame carries.
type Stream byte

// The two output streams of a job.
const (
	Stdout Stream = KindStdout
	Stderr Stream = KindStderr
)

// serve runs the handler, and ends the call if the handler did not.
func (c *Call) serve(handle Handler) {
	defer func() {
		if failure := recover(); failure != nil { // without this, the agent would end, and the machine with it
			console.Log("panic: ", fmt.Sprint(failure), "\n", string(debug.Stack()))
		}
		c.finish(KindBroken, nil, nil)
	}()
	handle(c)
}

// Context returns a context that ends when the host cancels the call, the session ends or the call is over.
func (c *Call) Context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.context == nil {
		c.context, c.cancel = context.WithCancel(context.Background())
		if c.isCut {
			c.cancel()
		}
	}
	return c.context
}

// Done returns a channel that is closed when the call is cut. It needs no context.
func (c *Call) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.isCut {
			close(c.done)
		}
	}
	return c.done
}

// cut ends the context of the call.
func (c *Call) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		return
	}
	c.isCut = true
	if c.cancel != nil {
		c.cancel()
	}
	if c.done != nil {
		close(c.done)
	}
}

func (c *Call) wasCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isCut
}

// Answer ends the call with a status and a body of at most MaxAnswer bytes.
func (c *Call) Answer(status int, body []byte) {
	c.finish(KindAnswer, statusBytes(status), body)
}

// Begin tells the host that the output stream begins, and sends that at once.
func (c *Call) Begin(status int) error {
	c.Body = nil // a stream may last for days, and nobody needs the body any more
	return c.session.write(appendFrame(nil, KindBegin, c.id, statusBytes(status), nil))
}

// Output reads bytes of the source from the offset on and adds one frame with them to the frames that Flush sends. It
// returns the number of bytes: at most MaxOutput, and 0 if there are none or the host has granted no credit for them.
// Once many frames are ready, Output sends them itself.
func (c *Call) Output(stream Stream, source Source, offset int64) (int, error) {
	if c.wasCut() {
		return 0, ErrOver
	}
	credit := c.Credit()
	if credit == 0 {
		return 0, nil
	}
	if c.ready == nil {
		c.ready = batches.Get().(*batch)
		c.ready.length = 0
	}
	frame := c.ready.bytes[c.ready.length:]
	n, err := source.ReadAt(frame[headerSize+offsetSize:][:credit], offset)
	if n == 0 || err != nil {
		return 0, err
	}
	binary.BigEndian.PutUint32(frame, uint32(offsetSize+n))
	frame[4] = byte(stream)
	binary.BigEndian.PutUint32(frame[5:], c.id)
	binary.BigEndian.PutUint64(frame[headerSize:], uint64(offset))
	c.ready.length += headerSize + offsetSize + n
	c.spend(offsetSize + n)
	if c.ready.length >= batchSize {
		return n, c.Flush()
	}
	return n, nil
}

// Flush sends all frames that are ready, with a single write.
func (c *Call) Flush() error {
	if c.ready == nil {
		return nil
	}
	defer c.drop()
	if c.wasCut() {
		return ErrOver
	}
	return c.session.write(c.ready.bytes[:c.ready.length])
}

// End sends all frames that are ready and ends the stream with a status in JSON, of at most MaxEnd bytes.
func (c *Call) End(status []byte) {
	c.finish(KindEnd, nil, status)
}

// finish sends the last frame of the call, and before it the frames that are ready. A call that the host has canceled
// ends as broken. Nobody needs the error of the write: it fails only when the session has ended.
func (c *Call) finish(kind byte, first, body []byte) {
	if c.isOver {
		return
	}
	c.isOver = true
	if c.duplex != nil {
		c.duplex.stop()
	}
	defer c.drop()
	wasCanceled := c.wasCut()
	c.session.close(c)
	if wasCanceled {
		kind, first, body = KindBroken, nil, nil
		c.drop()
	}
	var frames []byte
	if c.ready != nil {
		frames = c.ready.bytes[:c.ready.length]
	}
	_ = c.session.write(appendFrame(frames, kind, c.id, first, body))
}

// drop discards the frames that are ready.
func (c *Call) drop() {
	if c.ready != nil {
		batches.Put(c.ready)
		c.ready = nil
	}
}

// Credit returns how many bytes of output the host currently accepts in one frame: at most MaxOutput, and 0 until it
// grants more.
func (c *Call) Credit() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(max(0, min(c.credit-offsetSize, MaxOutput)))
}

// Granted returns a channel that receives a value after the host has granted credit. Credit may have counted that grant
// already, so call Credit again after each value.
func (c *Call) Granted() <-chan struct{} { return c.granted }

func (c *Call) spend(bytes int) {
	c.mu.Lock()
	c.credit -= int64(bytes)
	c.mu.Unlock()
}

// grant adds credit. The sum stays far below the limit of its type: the host can add 4 GiB with each frame.
func (c *Call) grant(bytes uint32) {
	c.mu.Lock()
	c.credit += int64(bytes)
	c.mu.Unlock()
	select {
	case c.granted <- struct{}{}:
	default:
	}
}

func statusBytes(status int) []byte {
	return binary.BigEndian.AppendUint16(nil, uint16(status))
}

func creditBytes(bytes int) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(bytes))
}
