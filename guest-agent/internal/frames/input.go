package frames

import (
	"errors"
	"io"
	"sync"
)

// errOverrun means that the host has sent input which the call has not asked for.
var errOverrun = errors.New("the host sent input without credit")

// largeInput is the size in bytes from which input is kept in a buffer of the pool.
const largeInput = 4 << 10

// inputBuffers is a pool of buffers for large frames of input, so that an upload of any size needs few of them.
var inputBuffers = sync.Pool{New: func() any { return new([MaxInput]byte) }}

// input holds the bytes that the host has sent for a stream and that the handler has not read yet.
type input struct {
	arrived chan struct{} // receives a value after bytes or their end have arrived

	mu      sync.Mutex
	pieces  []piece
	credit  int64 // bytes that the host may still send
	isEnded bool  // the host sends no more
	isOver  bool  // nobody reads any more
}

// piece is the unread part of one frame of input.
type piece struct {
	bytes  []byte
	buffer *[MaxInput]byte // goes back to the pool when all bytes were read; nil: not from the pool
}

func newInput() *input {
	return &input{credit: StartInput, arrived: make(chan struct{}, 1)}
}

// receive reads the payload of a frame of input from the session.
func (in *input) receive(stream io.Reader, length int) error {
	in.mu.Lock()
	in.credit -= int64(length)
	isAllowed := in.credit >= 0 && !in.isEnded
	in.mu.Unlock()
	if !isAllowed {
		return errOverrun
	}
	var p piece
	if length >= largeInput {
		p.buffer = inputBuffers.Get().(*[MaxInput]byte)
		p.bytes = p.buffer[:length]
	} else {
		p.bytes = make([]byte, length)
	}
	if _, err := io.ReadFull(stream, p.bytes); err != nil {
		return err
	}
	in.mu.Lock()
	if in.isOver {
		p.free()
	} else {
		in.pieces = append(in.pieces, p)
	}
	in.mu.Unlock()
	in.wake()
	return nil
}

// end notes that the host sends no more. It returns an error if the host has said so before.
func (in *input) end() error {
	in.mu.Lock()
	wasEnded := in.isEnded
	in.isEnded = true
	in.mu.Unlock()
	in.wake()
	if wasEnded {
		return errOverrun
	}
	return nil
}

// take copies unread bytes to p. It returns io.EOF when the host has sent all of them, and 0 and no error when the next
// bytes have not arrived yet.
func (in *input) take(p []byte) (n int, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.pieces) > 0 && n < len(p) {
		first := &in.pieces[0]
		copied := copy(p[n:], first.bytes)
		n += copied
		first.bytes = first.bytes[copied:]
		if len(first.bytes) > 0 {
			break
		}
		first.free()
		in.pieces[0] = piece{}
		in.pieces = in.pieces[1:]
	}
	if len(in.pieces) == 0 {
		in.pieces = nil
		if n == 0 && in.isEnded {
			return 0, io.EOF
		}
	}
	return n, nil
}

// grant allows the host to send more bytes.
func (in *input) grant(bytes int) {
	in.mu.Lock()
	in.credit += int64(bytes)
	in.mu.Unlock()
}

// drop frees the unread bytes, and all that still arrive.
func (in *input) drop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.isOver = true
	for i := range in.pieces {
		in.pieces[i].free()
	}
	in.pieces = nil
}

func (in *input) wake() {
	select {
	case in.arrived <- struct{}{}:
	default:
	}
}

func (p *piece) free() {
	if p.buffer != nil {
		inputBuffers.Put(p.buffer)
	}
	p.bytes, p.buffer = nil, nil
}
