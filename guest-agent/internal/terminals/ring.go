package terminals

// ringSize is how many bytes of its last output a terminal keeps.
const ringSize = 256 << 10

// minRing is the size of a ring that has just got its first byte. A shell that only prints its prompt needs no more.
const minRing = 1 << 10

// ring holds the last bytes of an output. Offsets count all bytes of the output from its beginning. The ring grows with
// its content, so that idle terminals need little memory. It has no lock: its user must hold one.
type ring struct {
	bytes []byte // byte number n of the output is at n modulo the length, which is a power of two
	begin int64  // offset of the oldest byte that is kept
	end   int64  // offset after the newest byte
}

// append adds data, at most ringSize bytes, and drops what is older than the last ringSize bytes.
func (r *ring) append(data []byte) {
	r.grow(int(min(r.end-r.begin, ringSize)) + len(data))
	for len(data) > 0 {
		n := copy(r.bytes[r.index(r.end):], data)
		r.end += int64(n)
		data = data[n:]
	}
	r.begin = max(r.begin, r.end-int64(len(r.bytes)))
}

// grow makes room for count bytes, but at most ringSize.
func (r *ring) grow(count int) {
	length := max(len(r.bytes), minRing)
	for length < min(count, ringSize) {
		length *= 2
	}
	if length == len(r.bytes) {
		return
	}
	old := *r
	r.bytes = make([]byte, length)
	for offset := old.begin; offset < old.end; {
		n := copy(r.bytes[r.index(offset):], old.piece(offset))
		offset += int64(n)
	}
}

// read copies bytes from the offset on to p, and returns their number: 0 at the end. The offset is within begin and end.
func (r *ring) read(p []byte, offset int64) int {
	n := 0
	for n < len(p) && offset < r.end {
		copied := copy(p[n:], r.piece(offset))
		n += copied
		offset += int64(copied)
	}
	return n
}

// piece returns bytes from the offset on, as many as lie in one piece in memory.
func (r *ring) piece(offset int64) []byte {
	from := r.index(offset)
	return r.bytes[from:min(int64(from)+r.end-offset, int64(len(r.bytes)))]
}

func (r *ring) index(offset int64) int { return int(offset) & (len(r.bytes) - 1) }

// drop frees the content. All later reads have to begin at the end.
func (r *ring) drop() { r.bytes, r.begin = nil, r.end }
