// Package output keeps what a job has written until the host acknowledges it. The newest bytes of a short backlog
// stay in memory and a long one goes to disk, so that a slow or absent host costs neither bytes nor memory.
package output

import (
	"errors"
	"sync"

	"sandbar/guest-agent/internal/freeze"
)

// memoryLimit is what the unacknowledged bytes of one stream may take in memory.
const memoryLimit = 1 << 20

var (
	// ErrAcknowledged is the answer to a read of bytes that were given up by an acknowledgement.
	ErrAcknowledged = errors.New("the bytes at this offset were acknowledged already")
	// ErrAhead is the answer to an acknowledgement of bytes that were never written.
	ErrAhead = errors.New("the offset is past the end of the stream")
	// ErrFull says that neither memory nor disk takes another byte for now.
	ErrFull = errors.New("no space for output until some is acknowledged")
)

// A segment is a run of bytes of the stream in one place: in memory, or at the same offset of the spill file.
type segment struct {
	offset int64
	length int64
	memory []byte // nil: in the spill file
}

func (s *segment) end() int64 { return s.offset + s.length }

// Buffer is one output stream, addressed by absolute byte offsets. All methods may be called at once.
type Buffer struct {
	mu        sync.Mutex
	limit     int64 // bytes kept of the stream in all; the rest is dropped
	base      int64 // everything below is acknowledged
	end       int64 // everything below was written
	truncated bool
	segments  []segment // from base to end without gaps
	inMemory  int       // capacity of all segments in memory
	spill     spillFile
}

// NewBuffer returns an empty stream that keeps limit bytes, and spills to unnamed files in directory if the gate allows.
func NewBuffer(limit int64, directory string, gate *freeze.Gate) *Buffer {
	return &Buffer{limit: limit, spill: spillFile{directory: directory, gate: gate}}
}

// Append takes bytes at the end of the stream and returns how many it is done with. The error is ErrFull or nil.
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

// fillTail uses the capacity that the last segment has left, if it is one in memory.
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

// ReadAt copies what there is from offset on into p. It returns 0 at or past the end of what was written.
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

// Acknowledge gives up all bytes below offset. To repeat an older acknowledgement changes nothing.
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

// freeSpill gives the disk space of acknowledged bytes back.
func (b *Buffer) freeSpill() {
	for _, s := range b.segments {
		if s.memory == nil {
			b.spill.punch(b.base)
			return
		}
	}
	b.spill.close()
}

// Seal gives back the memory that the stream reserved and will not need, as no more will be written.
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

// Drop gives up all bytes, and those to come.
func (b *Buffer) Drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = b.end
	b.giveUp()
}

// Close gives up all bytes.
func (b *Buffer) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveUp()
}

func (b *Buffer) giveUp() {
	b.segments, b.inMemory, b.base = nil, 0, b.end
	b.spill.close()
}

// Extent tells the offsets of the first byte kept and of the end, and whether bytes were dropped at the limit.
func (b *Buffer) Extent() (base, end int64, truncated bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.base, b.end, b.truncated
}
