// Package channel turns the one port between host and guest into a listener of sessions: at most one is alive, and
// no byte of an older one follows the echo that starts a newer one.
package channel

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
)

// readSize is the size of the read buffer in bytes; the driver gives at most a page at a time.
const readSize = 16 << 10

// Channel reads the port for ever and offers every session that the host starts to Accept.
type Channel struct {
	port    io.ReadWriter
	token   Token
	current *session // only the reader touches it
	starts  chan *session
	done    chan struct{}
	err     error

	writing sync.Mutex // held over each write to the port, so that the echo comes after the last old byte
}

// New returns the channel on port. Run must be called for anything to arrive.
func New(port io.ReadWriter, token Token) *Channel {
	return &Channel{
		port:   port,
		token:  token,
		starts: make(chan *session, 1),
		done:   make(chan struct{}),
	}
}

// Run reads the port until it fails, and returns that error.
func (c *Channel) Run() error {
	defer close(c.done)
	scan := scanner{token: c.token, start: c.start, data: c.feed}
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

// start ends the session before, echoes the preamble of the new one and offers it to Accept.
func (c *Channel) start(epoch Epoch) {
	if c.current != nil {
		c.current.end()
	}
	preamble := slices.Concat(c.token[:], epoch[:])
	c.writing.Lock()
	_, err := c.writePort(preamble)
	c.writing.Unlock()
	if err != nil {
		c.fail(err)
		return
	}
	c.current = newSession(c)
	c.offer(c.current)
}

// offer replaces a start that nobody has accepted yet: it is of a session that has ended.
func (c *Channel) offer(s *session) {
	select {
	case <-c.starts:
	default:
	}
	c.starts <- s
}

// feed drops what comes before the first preamble or after the end of a session: it belongs to no one.
func (c *Channel) feed(data []byte) {
	if c.current != nil {
		c.current.feed(data)
	}
}

// write sends b in pieces as long as s is the living session.
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
		return 0, net.ErrClosed
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
func (c *Channel) Accept() (net.Conn, error) {
	select {
	case s := <-c.starts:
		return s, nil
	case <-c.done:
		return nil, errors.Join(net.ErrClosed, c.err)
	}
}

// Close does nothing: the channel lives as long as the machine.
func (c *Channel) Close() error { return nil }

// Addr names the host as the peer of every session.
func (c *Channel) Addr() net.Addr { return address{} }
