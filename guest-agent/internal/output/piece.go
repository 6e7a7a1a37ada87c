package output

import "sync"

// Sizes of a piece of memory in bytes: a job that prints a line should not cost more than the small one.
const (
	smallPiece = 4 << 10
	largePiece = 64 << 10
)

// pieces holds large pieces for use again: at full speed they would be most of the garbage.
var pieces = sync.Pool{New: func() any { return new([largePiece]byte) }}

func newPiece(size int) []byte {
	if size == largePiece {
		return pieces.Get().(*[largePiece]byte)[:0]
	}
	return make([]byte, 0, size)
}

// freePiece takes a piece back. Nobody may use it any more.
func freePiece(piece []byte) {
	if cap(piece) == largePiece {
		pieces.Put((*[largePiece]byte)(piece[:largePiece]))
	}
}
