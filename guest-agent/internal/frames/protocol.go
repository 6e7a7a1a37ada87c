// Package frames serves the host's requests on a session: a stream of length-prefixed frames, many calls at once. The
// README of the guest agent describes the protocol ("Wire protocol"); this file holds its numbers.
package frames

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// The kinds of frames. The host sends those below 64, and the guest the others.
const (
	KindRequest  = 1
	KindCredit   = 2
	KindCancel   = 3
	KindInput    = 4
	KindInputEnd = 5

	KindAnswer      = 64
	KindBegin       = 65
	KindStdout      = 66
	KindStderr      = 67
	KindEnd         = 68
	KindBroken      = 69
	KindInputCredit = 70
)

// The limits of the protocol, in bytes.
const (
	headerSize = 4 + 1 + 4 // length, kind, id
	offsetSize = 8
	statusSize = 2
	creditSize = 4

	maxAddress = 512

	// MaxBody is the size of the largest body of a request. The largest request starts a job with its standard input in
	// base64.
	MaxBody = 2 << 20
	// MaxAnswer is the size of the largest body of an answer.
	MaxAnswer = 1 << 20
	// MaxOutput is how many bytes of output a frame holds at most.
	MaxOutput = 64 << 10
	// MaxEnd is the size of the largest body of an end frame.
	MaxEnd = 4 << 10

	// MaxHead is the size of the largest head of a two-way stream.
	MaxHead = 4 << 10
	// MaxInput is how many bytes of input a frame holds at most.
	MaxInput = 64 << 10

	// StartInput is how many bytes of input the host may send for a two-way stream before it gets credit for more.
	StartInput = 256 << 10
	// StartCredit is how many bytes of output, with their offsets, a call may send before the host grants more.
	StartCredit = 256 << 10
)

// maxCalls is how many calls may be open at once in a session.
const maxCalls = 250

var errFrame = errors.New("the host sent a frame that breaks the protocol")

// header is the first part of every frame.
type header struct {
	length int // of the payload, in bytes
	kind   byte
	id     uint32
}

// readHeader reads the header of the host's next frame. It returns errFrame if the header breaks the protocol: its id
// is zero, the host may not send its kind, or the length does not fit the kind.
func readHeader(stream io.Reader, space *[headerSize]byte) (header, error) {
	if _, err := io.ReadFull(stream, space[:]); err != nil {
		return header{}, err
	}
	length := binary.BigEndian.Uint32(space[:])
	h := header{kind: space[4], id: binary.BigEndian.Uint32(space[5:])}
	if h.id == 0 || !fits(h.kind, length) {
		return header{}, errFrame
	}
	h.length = int(length)
	return h, nil
}

// fits reports whether the host may send a frame of this kind with a payload of this length.
func fits(kind byte, length uint32) bool {
	switch kind {
	case KindRequest:
		return length >= 2 && length <= 2+maxAddress+MaxBody
	case KindCredit:
		return length == creditSize
	case KindCancel, KindInputEnd:
		return length == 0
	case KindInput:
		return length >= 1 && length <= MaxInput
	}
	return false
}

// appendFrame appends a whole frame to b. The frame's payload consists of first and then body.
func appendFrame(b []byte, kind byte, id uint32, first, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(first)+len(body)))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, id)
	return append(append(b, first...), body...)
}

// parseRequest splits the payload of a request frame into the fields of the call.
func (c *Call) parseRequest(payload []byte) error {
	size := int(binary.BigEndian.Uint16(payload))
	payload = payload[2:]
	if size > maxAddress || size > len(payload) || len(payload)-size > MaxBody {
		return errFrame
	}
	if size < len(payload) {
		c.Body = payload[size:]
	}
	method, address, found := strings.Cut(string(payload[:size]), " ")
	if !found || !isMethod(method) || !isAddress(address) {
		return errFrame
	}
	c.Method = method
	c.Path, c.Query, _ = strings.Cut(address, "?")
	return nil
}

func isMethod(text string) bool {
	for i := range len(text) {
		if text[i] < 'A' || text[i] > 'Z' {
			return false
		}
	}
	return text != ""
}

// isAddress reports whether text is a path in visible ASCII characters, which may have a query.
func isAddress(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return strings.HasPrefix(text, "/")
}
