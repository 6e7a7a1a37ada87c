package frames

import "sync"

// Duplex is a call that carries bytes in both directions. One goroutine may read while another writes. The end of the
// call makes both return ErrOver.
type Duplex struct {
	call   *Call
	input  *input
	offset int64         // of the next byte to send
	owed   int           // bytes that were read and for which the host has no credit yet
	over   chan struct{} // closed when the call ends

	reading sync.Mutex // held by Read
	writing sync.Mutex // held by Write
}

// BeginDuplex tells the host that a two-way stream begins, with a head of at most MaxHead bytes. The handler then uses
// the stream, and at last calls End.
func (c *Call) BeginDuplex(status int, head []byte) (*Duplex, error) {
	d := &Duplex{call: c, input: newInput(), over: make(chan struct{})}
	c.Body = nil
	c.mu.Lock()
	c.duplex = d
	c.mu.Unlock()
	// The buffer for input is ready before this frame, because the host may send input as soon as it gets the frame.
	if err := c.session.write(appendFrame(nil, KindBegin, c.id, statusBytes(status), head)); err != nil {
		return nil, err
	}
	return d, nil
}

// stop makes Read and Write return and waits until they have returned, so that no frame of theirs follows the last frame
// of the call.
func (d *Duplex) stop() {
	close(d.over)
	d.reading.Lock()
	d.writing.Lock()
	d.input.drop()
	d.writing.Unlock()
	d.reading.Unlock()
}

func (d *Duplex) isOver() bool {
	select {
	case <-d.over:
		return true
	default:
		return d.call.wasCut()
	}
}

// Read returns bytes that the host has sent. It returns io.EOF when the host has ended its direction, and ErrOver when
// the host has canceled the call, or the call or the session has ended.
func (d *Duplex) Read(p []byte) (int, error) {
	d.reading.Lock()
	defer d.reading.Unlock()
	for {
		if d.isOver() {
			return 0, ErrOver
		}
		n, err := d.input.take(p)
		if err != nil {
			return 0, err
		}
		if n > 0 || len(p) == 0 {
			return n, d.giveBack(n)
		}
		select {
		case <-d.input.arrived:
		case <-d.over:
		case <-d.call.Done():
		}
	}
}

// giveBack grants the host credit for the bytes that were read, in large pieces, so that small reads do not cost one
// frame each.
func (d *Duplex) giveBack(bytes int) error {
	d.owed += bytes
	if d.owed < StartInput/4 {
		return nil
	}
	d.input.grant(d.owed)
	granted := appendFrame(nil, KindInputCredit, d.call.id, creditBytes(d.owed), nil)
	d.owed = 0
	return d.call.session.write(granted)
}

// Write sends bytes to the host. It waits until the host has granted credit for all of them. It returns ErrOver when the
// host has canceled the call, or the call or the session has ended.
func (d *Duplex) Write(p []byte) (sent int, err error) {
	d.writing.Lock()
	defer d.writing.Unlock()
	for sent < len(p) {
		if d.isOver() {
			return sent, ErrOver
		}
		n, err := d.call.Output(Stdout, rest(p[sent:]), d.offset)
		sent += n
		d.offset += int64(n)
		if err != nil {
			return sent, err
		}
		if n > 0 {
			continue
		}
		if err := d.call.Flush(); err != nil {
			return sent, err
		}
		select {
		case <-d.call.granted:
		case <-d.over:
		case <-d.call.Done():
		}
	}
	return sent, d.call.Flush()
}

// rest is a Source of bytes that are sent in one piece, whatever their offset.
type rest []byte

func (r rest) ReadAt(p []byte, _ int64) (int, error) { return copy(p, r), nil }
