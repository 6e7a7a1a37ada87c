// Finds the starts of sessions in the byte stream from the host. The guest cannot see on the port that a host has
// quickly reconnected, or that the machine was restored from a snapshot. So each session starts with a preamble, which
// the scanner searches for all the time.

package channel

import "bytes"

// TokenSize and EpochSize are the lengths in bytes of the last two parts of a preamble.
const (
	TokenSize = 32
	EpochSize = 8
)

// Token is the secret of the machine, which only its host and its agent know.
type Token [TokenSize]byte

// Epoch is a random number that identifies a session.
type Epoch [EpochSize]byte

// Hello is the first part of every preamble; token and epoch follow. It is the same for all machines. The scanner
// searches for it only while a new token may be set. Later it searches for the token, which no program of the machine
// knows, so nothing that a program makes the host send can start a session.
var Hello = [TokenSize]byte([]byte("sandbar-host-opens-a-new-session"))

// scanner splits the inbound stream into session starts and the data between them. Scan returns how many bytes at the
// end of its input it needs again. The caller puts these bytes in front of the next input.
//
// The scanner passes data on at once, even when the data ends like the beginning of a preamble. Otherwise the last byte
// of a request could be held back until the next request. If it was the beginning of a preamble after all, no harm is
// done: the session that got these bytes ends at that preamble.
type scanner struct {
	known  func() *Token // the token to search for; nil while every token is accepted
	passed int           // bytes at the front of the next stream that were already passed on as data
	skip   int           // bytes ahead that belong to a preamble; they are not data, but another preamble may begin in them
	start  func(Token, Epoch)
	data   func([]byte)
}

// Scan processes stream and returns how many bytes at its end may be the beginning of a preamble. A host can die in the
// middle of its preamble, so Scan searches the rest of a preamble too for the preamble of the next host.
func (s *scanner) Scan(stream []byte) (held int) {
	mark, rest := Hello, TokenSize+EpochSize
	if known := s.known(); known != nil {
		mark, rest = *known, EpochSize
	}
	for {
		at := bytes.Index(stream, mark[:])
		if at < 0 {
			held := partial(stream, mark)
			s.deliver(stream[s.passed:])
			s.passed = held
			return held
		}
		s.deliver(stream[min(s.passed, at):at])
		s.passed = 0
		stream = stream[at:]
		size := len(mark) + rest
		if len(stream) < size {
			return len(stream)
		}
		s.start(Token(stream[size-EpochSize-TokenSize:size-EpochSize]), Epoch(stream[size-EpochSize:size]))
		s.skip = rest
		stream = stream[len(mark):]
	}
}

// partial returns the length of the longest incomplete mark at the end of stream.
func partial(stream []byte, mark [TokenSize]byte) int {
	for n := min(len(mark)-1, len(stream)); n > 0; n-- {
		if bytes.HasPrefix(mark[:], stream[len(stream)-n:]) {
			return n
		}
	}
	return 0
}

func (s *scanner) deliver(data []byte) {
	preamble := min(s.skip, len(data))
	s.skip -= preamble
	if data = data[preamble:]; len(data) > 0 {
		s.data(data)
	}
}
