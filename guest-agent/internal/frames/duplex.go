package frames

// Duplex is a call that carries bytes in both directions. One goroutine may read while another writes; both must have
// returned before the handler returns.
type Duplex struct {
	call   *Call
	input  *input
	offset int64 // of the next byte to send
	owed   int   // bytes that were read and for which the host has no credit yet
}

// BeginDuplex tells the host that a two-way stream begins, with a head of at most MaxHead bytes. The handler then uses
// the stream, and at last calls End.
func (c *Call) BeginDuplex(status int, head []byte) (*Duplex, error) {
	d := &Duplex{call: c, input: newInput()}
	c.Body = nil
	c.mu.Lock()
	c.input = d.input
	c.mu.Unlock()
	// From here on, frames of input find their buffer.
	if err := c.session.write(appendFrame(nil, KindBegin, c.id, statusBytes(status), head)); err != nil {
		return nil, err
	}
	return d, nil
}

// Read returns bytes that the host has sent. It returns io.EOF when the host has ended its direction, and ErrOver when
// the host has canceled the call or the session has ended.
func (d *Duplex) Read(p []byte) (int, error) {
	for {
		if d.call.context.Err() != nil {
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
		case <-d.call.context.Done():
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
// host has canceled the call or the session has ended.
func (d *Duplex) Write(p []byte) (sent int, err error) {
	for sent < len(p) {
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
		case <-d.call.context.Done():
			return sent, ErrOver
		}
	}
	return sent, d.call.Flush()
}

// rest is a Source of bytes that are sent in one piece, whatever their offset.
type rest []byte

func (r rest) ReadAt(p []byte, _ int64) (int, error) { return copy(p, r), nil }
