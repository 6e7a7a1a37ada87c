// Package channel makes connections ("sessions") out of the virtio-serial port between host and guest, which is a
// single byte stream. The host starts a session with a preamble, and the guest echoes its token and the complement of its
// epoch. At most one session is alive. After the echo of a new session, no byte of an older session is sent.
package channel

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"
)

// readSize is the size of the read buffer in bytes. The driver returns at most one page (4 KiB) per read.
const readSize = 16 << 10

// Channel reads the port and returns from Accept each session that the host starts.
type Channel struct {
	port    io.ReadWriter
	accepts func() bool
	token   *Token   // of the last session; nil before the first. Only the reader touches it
	current *session // only the reader touches it
	starts  chan *session
	done    chan struct{}
	err     error

	writing sync.Mutex // held during each write to the port, so that the echo follows the last byte of the old session
}

// New returns the channel on port. Sessions and data arrive only while Run runs. accepts reports whether a session may
// set another token now; the first session always may. It should be true only while no program of the machine runs: in
// a new machine, and in one that was made from a memory snapshot, so that no two machines have the same token.
func New(port io.ReadWriter, accepts func() bool) *Channel {
	return &Channel{
		port:    port,
		accepts: accepts,
		starts:  make(chan *session, 1),
		done:    make(chan struct{}),
	}
}

// Run reads the port until it fails, and returns that error.
func (c *Channel) Run() error {
	defer close(c.done)
	scan := scanner{known: c.known, start: c.start, data: c.feed}
	buffer := make([]byte, readSize)
	held := 0
	for c.err == nil {
		n, err := c.port.Read(buffer[held:])
		if err != nil {
			c.fail(err)
			break
		}
		stream := buffer[:held+n]
		held = scan.Scan(stream)
		copy(buffer, stream[len(stream)-held:])
	}
	return c.err
}

func (c *Channel) fail(err error) {
	c.err = err
	if c.current != nil {
		c.current.end()
	}
}

func (c *Channel) known() *Token {
	if c.token == nil || c.accepts() {
		return nil
	}
	return c.token
}

// start ends the current session, echoes the new one's token and the complement of its epoch, and hands the new session
// to Accept. An agent before this protocol echoed the epoch itself, so the echo tells the host which protocol follows.
func (c *Channel) start(token Token, epoch Epoch) {
	if c.current != nil {
		c.current.end()
	}
	c.token = &token
	for i := range epoch {
		epoch[i] ^= 0xff
	}
	c.writing.Lock()
	_, err := c.writePort(slices.Concat(token[:], epoch[:]))
	c.writing.Unlock()
	if err != nil {
		c.fail(err)
		return
	}
	c.current = newSession(c)
	c.offer(c.current)
}

// offer hands the session to Accept. It drops an older session that was not accepted yet, because that one has ended.
func (c *Channel) offer(s *session) {
	select {
	case <-c.starts:
	default:
	}
	c.starts <- s
}

// feed passes data to the current session. It drops data that arrives before the first preamble.
func (c *Channel) feed(data []byte) {
	if c.current != nil {
		c.current.feed(data)
	}
}

// write sends b in pieces of at most maxWrite bytes, and stops with an error when session s has ended.
func (c *Channel) write(s *session, b []byte) (sent int, err error) {
	for sent < len(b) {
		n, err := c.writePiece(s, b[sent:])
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

func (c *Channel) writePiece(s *session, b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if s.ended.Load() {
		return 0, os.ErrClosed
	}
	return c.port.Write(b[:min(len(b), maxWrite)])
}

func (c *Channel) writePort(b []byte) (sent int, err error) {
	for sent < len(b) {
		n, err := c.port.Write(b[sent:])
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// Accept returns the next session.
func (c *Channel) Accept() (io.ReadWriteCloser, error) {
	select {
	case s := <-c.starts:
		return s, nil
	case <-c.done:
		return nil, errors.Join(os.ErrClosed, c.err)
	}
}
