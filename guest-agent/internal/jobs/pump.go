// A pump moves the output of a job from a pipe into the output buffer. A background process that the job left behind
// may keep the pipe open. That process must not block on a full pipe or be killed for writing to a closed one, so the
// pump reads until no process can write any more.

package jobs

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/output"
)

const (
	// pumpSize is the default capacity of a pipe, in bytes. A read never returns more.
	pumpSize = 64 << 10
	// fullRetry is the pause before a write is tried again after the disk was full. Acknowledged output also frees
	// space and ends the pause early.
	fullRetry = time.Second
)

// scratch holds read buffers. A pump borrows one only while it moves bytes, so that idle pumps use no memory for it.
var scratch = sync.Pool{New: func() any { return new([pumpSize]byte) }}

type pump struct {
	pipe    *os.File // its reading end, in non-blocking mode
	raw     syscall.RawConn
	buffer  *output.Buffer
	gate    *freeze.Gate
	grown   *event // fired after bytes were added to the buffer
	freed   *event // fired by others after bytes were acknowledged
	drained chan struct{}
}

// newPump makes a pipe and returns its pump and its write end.
func newPump(buffer *output.Buffer, gate *freeze.Gate, grown, freed *event) (*pump, *os.File, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	writer := os.NewFile(uintptr(ends[1]), "pipe")
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(ends[0]), writer.Close())
	}
	reader := os.NewFile(uintptr(ends[0]), "pipe")
	raw, err := reader.SyscallConn()
	if err != nil {
		return nil, nil, errors.Join(err, reader.Close(), writer.Close())
	}
	return &pump{
		pipe: reader, raw: raw, buffer: buffer, gate: gate, grown: grown, freed: freed, drained: make(chan struct{}),
	}, writer, nil
}

// run reads the pipe until no process can write to it any more. Bytes that were written before stop go to the buffer,
// and later ones are dropped.
func (p *pump) run() {
	defer p.pipe.Close()
	err := p.follow()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = p.drain()
	}
	p.buffer.Seal()
	close(p.drained)
	if err == nil {
		p.discard()
	}
}

// stop makes the pump keep only the bytes that are already in the pipe. The pump closes drained when it has stored
// them.
func (p *pump) stop() {
	_ = p.pipe.SetReadDeadline(time.Unix(1, 0)) // fails only if the pipe is closed, and then the pump has ended
}

// follow moves bytes to the buffer until the end of the stream or a call of stop. The error tells which of the two
// ended it.
func (p *pump) follow() error {
	for {
		var failure error
		err := p.raw.Read(func(fd uintptr) bool {
			failure = p.transfer(int(fd), pumpSize, p.keep)
			return failure != unix.EAGAIN
		})
		if err != nil {
			return err
		}
		if failure != nil {
			return failure
		}
	}
}

// drain moves the bytes that are in the pipe now. It asks for their number first, because a background process may
// never stop writing.
func (p *pump) drain() error {
	var failure error
	err := p.raw.Control(func(fd uintptr) {
		left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		if err != nil {
			failure = err
			return
		}
		for left > 0 && failure == nil {
			failure = p.transfer(int(fd), left, func(data []byte) {
				left -= len(data)
				p.keep(data)
			})
		}
	})
	if failure == unix.EAGAIN {
		failure = nil
	}
	return errors.Join(err, failure)
}

// discard reads and drops later output, so that processes that still write do not block.
func (p *pump) discard() {
	if err := p.pipe.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	for {
		var failure error
		err := p.raw.Read(func(fd uintptr) bool {
			failure = p.transfer(int(fd), pumpSize, func([]byte) {})
			return failure != unix.EAGAIN
		})
		if err != nil || failure != nil {
			return
		}
	}
}

// transfer makes one read of at most limit bytes and passes them to use. It returns io.EOF at the end of the stream.
func (p *pump) transfer(fd, limit int, use func([]byte)) error {
	space := scratch.Get().(*[pumpSize]byte)
	defer scratch.Put(space)
	for {
		n, err := unix.Read(fd, space[:min(limit, pumpSize)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		}
		use(space[:n])
		return nil
	}
}

// keep adds data to the buffer and waits while the buffer has no room. Meanwhile the pipe fills up, which blocks the
// job.
func (p *pump) keep(data []byte) {
	for {
		freed, thawed := p.freed.wait(), p.gate.Opened()
		n, err := p.buffer.Append(data)
		p.grown.fire()
		if data = data[n:]; err == nil {
			return
		}
		select {
		case <-freed:
		case <-thawed:
		case <-time.After(fullRetry):
		}
	}
}
