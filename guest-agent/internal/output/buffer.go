// Package output keeps the output of jobs until the host acknowledges it. Up to 1 MiB per stream stays in memory, the
// rest goes to a file. So with a slow or absent host no output is lost, and the memory use stays small.
package output

import (
	"errors"
	"sync"

	"sandbar/guest-agent/internal/freeze"
)

// memoryLimit is how many bytes of memory the unacknowledged output of one stream may use.
const memoryLimit = 1 << 20

var (
	// ErrAcknowledged is the error of a read below the acknowledged offset. Those bytes are gone.
	ErrAcknowledged = errors.New("the bytes at this offset were acknowledged already")
	// ErrAhead is the error of an acknowledgement past the end of the stream.
	ErrAhead = errors.New("the offset is past the end of the stream")
	// ErrFull means that neither memory nor disk has room for more bytes at the moment.
	ErrFull = errors.New("no space for output until some is acknowledged")
)

// A segment is a range of bytes of the stream. They are in memory, or in the spill file at the same offsets.
type segment struct {
	offset int64
	length int64
	memory []byte // nil: in the spill file
}

func (s *segment) end() int64 { return s.offset + s.length }

// Buffer holds one output stream, addressed by absolute byte offsets. Its methods may be called concurrently.
type Buffer struct {
	mu        sync.Mutex
	limit     int64     // maximum length of the stream; bytes past it are dropped
	base      int64     // all bytes below are acknowledged
	end       int64     // length of the stream so far
	truncated bool      // bytes past the limit were dropped
	segments  []segment // cover base to end without gaps
	inMemory  int       // total capacity of the segments in memory, in bytes
	spill     spillFile
}

// NewBuffer returns an empty stream of at most limit bytes. It spills to an unnamed file in directory while the gate is
// open.
func NewBuffer(limit int64, directory string, gate *freeze.Gate) *Buffer {
	return &Buffer{limit: limit, spill: spillFile{directory: directory, gate: gate}}
}

// Append adds data to the end of the stream and drops what is past the limit. done counts the stored and the dropped
// bytes together; the caller must append the rest again. err is ErrFull when there is no room for the rest at the
// moment, otherwise nil.
func (b *Buffer) Append(data []byte) (done int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for done < len(data) {
		room := b.limit - b.end
		if room <= 0 {
			b.truncated = true
			return len(data), nil
		}
		rest := data[done:]
		n, err := b.appendSome(rest[:min(int64(len(rest)), room)])
		done += n
		if err != nil {
			return done, ErrFull
		}
	}
	return done, nil
}

func (b *Buffer) appendSome(data []byte) (int, error) {
	if n := b.fillTail(data); n > 0 {
		return n, nil
	}
	size := smallPiece
	if len(data) > smallPiece || b.inMemory > 0 {
		size = largePiece
	}
	if b.inMemory+size <= memoryLimit {
		b.inMemory += size
		b.segments = append(b.segments, segment{offset: b.end, memory: newPiece(size)})
		return b.fillTail(data), nil
	}
	return b.appendSpill(data)
}

// fillTail stores data in the free capacity of the last segment, if that is in memory. It returns the number of bytes.
func (b *Buffer) fillTail(data []byte) int {
	if len(b.segments) == 0 {
		return 0
	}
	tail := &b.segments[len(b.segments)-1]
	n := min(len(data), cap(tail.memory)-len(tail.memory))
	if n <= 0 {
		return 0
	}
	tail.memory = append(tail.memory, data[:n]...)
	tail.length += int64(n)
	b.end += int64(n)
	return n
}

func (b *Buffer) appendSpill(data []byte) (int, error) {
	n, err := b.spill.write(data, b.end)
	if n == 0 {
		return 0, err
	}
	if last := len(b.segments) - 1; last >= 0 && b.segments[last].memory == nil {
		b.segments[last].length += int64(n)
	} else {
		b.segments = append(b.segments, segment{offset: b.end, length: int64(n)})
	}
	b.end += int64(n)
	return n, nil
}

// ReadAt copies bytes from offset on into p and returns their number: 0 at the end of the stream. The error is
// ErrAcknowledged for an offset that was acknowledged.
func (b *Buffer) ReadAt(p []byte, offset int64) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if offset < b.base {
		return 0, ErrAcknowledged
	}
	read := 0
	for i := range b.segments {
		s := &b.segments[i]
		if offset >= s.end() {
			continue
		}
		if read == len(p) {
			break
		}
		n, err := b.readSegment(s, p[read:], offset)
		if err != nil {
			return read, err
		}
		read += n
		offset += int64(n)
	}
	return read, nil
}

func (b *Buffer) readSegment(s *segment, p []byte, offset int64) (int, error) {
	if s.memory != nil {
		return copy(p, s.memory[offset-s.offset:]), nil
	}
	n := min(int64(len(p)), s.end()-offset)
	return b.spill.read(p[:n], offset)
}

// Acknowledge frees all bytes below offset. An offset below an earlier one changes nothing.
func (b *Buffer) Acknowledge(offset int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if offset > b.end {
		return ErrAhead
	}
	if offset <= b.base {
		return nil
	}
	b.base = offset
	gone, spilled := 0, false
	for _, s := range b.segments {
		spilled = spilled || s.memory == nil
		if s.end() > offset {
			break
		}
		b.inMemory -= cap(s.memory)
		freePiece(s.memory)
		gone++
	}
	rest := copy(b.segments, b.segments[gone:])
	clear(b.segments[rest:])
	b.segments = b.segments[:rest]
	if spilled {
		b.freeSpill()
	}
	return nil
}

// freeSpill frees the disk space of acknowledged bytes.
func (b *Buffer) freeSpill() {
	for _, s := range b.segments {
		if s.memory == nil {
			b.spill.punch(b.base)
			return
		}
	}
	b.spill.close()
}

// Seal frees unused capacity in memory. The caller promises to write nothing more.
func (b *Buffer) Seal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.segments) == 0 {
		return
	}
	tail := &b.segments[len(b.segments)-1]
	if spare := cap(tail.memory) - len(tail.memory); spare > smallPiece {
		b.inMemory -= spare
		exact := append(make([]byte, 0, len(tail.memory)), tail.memory...)
		freePiece(tail.memory)
		tail.memory = exact
	}
}

// Drop frees all bytes. After it, Append drops everything.
func (b *Buffer) Drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = b.end
	b.giveUp()
}

// Close frees all bytes.
func (b *Buffer) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveUp()
}

func (b *Buffer) giveUp() {
	b.segments, b.inMemory, b.base = nil, 0, b.end
	b.spill.close()
}

// Extent returns the offset of the first byte that is kept, the length of the stream, and whether bytes past the limit
// were dropped.
func (b *Buffer) Extent() (base, end int64, truncated bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.base, b.end, b.truncated
}
