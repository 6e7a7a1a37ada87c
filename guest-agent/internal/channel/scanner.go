// Finds the starts of sessions in the byte stream from the host. The guest cannot see on the port that a host has
// quickly reconnected, or that the machine was restored from a snapshot. So each session starts with a secret token,
// which the scanner searches for all the time.

package channel

import "bytes"

// TokenSize and EpochSize are the lengths in bytes of the two parts of a session's preamble.
const (
	TokenSize = 32
	EpochSize = 8
)

// Token is the secret of the machine. The preamble of each session starts with it.
type Token [TokenSize]byte

// Epoch is a random number that identifies a session. It follows the token in the preamble.
type Epoch [EpochSize]byte

// scanner splits the inbound stream into session starts and the data between them. Scan returns how many bytes at the
// end of its input it needs again. The caller puts these bytes in front of the next input.
//
// The scanner passes data on at once, even when the data ends like the beginning of a token. Otherwise the last byte of
// a request could be held back until the next request. If it was the beginning of a token after all, no harm is done:
// the session that got these bytes ends at that token.
type scanner struct {
	token  Token
	passed int // bytes at the front of the next stream that were already passed on as data
	skip   int // bytes ahead that belong to the epoch of a start; they are not data, but a token may begin in them
	start  func(Epoch)
	data   func([]byte)
}

// Scan processes stream and returns how many bytes at its end may be the beginning of a preamble. A host can die in the
// middle of its preamble, so Scan searches the epoch too for the token of the next host.
func (s *scanner) Scan(stream []byte) (held int) {
	for {
		at := bytes.Index(stream, s.token[:])
		if at < 0 {
			held := s.partialToken(stream)
			s.deliver(stream[s.passed:])
			s.passed = held
			return held
		}
		s.deliver(stream[min(s.passed, at):at])
		s.passed = 0
		stream = stream[at:]
		if len(stream) < TokenSize+EpochSize {
			return len(stream)
		}
		s.start(Epoch(stream[TokenSize : TokenSize+EpochSize]))
		s.skip = EpochSize
		stream = stream[TokenSize:]
	}
}

// partialToken returns the length of the longest incomplete token at the end of stream.
func (s *scanner) partialToken(stream []byte) int {
	for n := min(TokenSize-1, len(stream)); n > 0; n-- {
		if bytes.HasPrefix(s.token[:], stream[len(stream)-n:]) {
			return n
		}
	}
	return 0
}

func (s *scanner) deliver(data []byte) {
	epoch := min(s.skip, len(data))
	s.skip -= epoch
	if data = data[epoch:]; len(data) > 0 {
		s.data(data)
	}
}
