package output

import "sync"

// Sizes of the pieces of memory that hold output, in bytes. A job that prints a line needs only a small piece.
const (
	smallPiece = 4 << 10
	largePiece = 64 << 10
)

// pieces is a pool of large pieces. At full speed, most of the garbage would be large pieces, so they are reused.
var pieces = sync.Pool{New: func() any { return new([largePiece]byte) }}

func newPiece(size int) []byte {
	if size == largePiece {
		return pieces.Get().(*[largePiece]byte)[:0]
	}
	return make([]byte, 0, size)
}

// freePiece returns a piece to the pool. The caller must not use it afterwards.
func freePiece(piece []byte) {
	if cap(piece) == largePiece {
		pieces.Put((*[largePiece]byte)(piece[:largePiece]))
	}
}
