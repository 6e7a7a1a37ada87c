// The start of a session is a token inside the byte stream, because a port shows neither a quick reconnect nor
// the restore of a snapshot: the only certain sign of a new host connection is what it sends first.

package channel

import "bytes"

// TokenSize and EpochSize are the lengths in bytes of the two parts of a session's preamble.
const (
	TokenSize = 32
	EpochSize = 8
)

// Token is the secret of the machine that starts a preamble.
type Token [TokenSize]byte

// Epoch tells one session of a machine from the next.
type Epoch [EpochSize]byte

// scanner splits the inbound stream into session starts and the bytes between them. The caller keeps the bytes
// that Scan asks for and puts them in front of what it reads next.
//
// Data is passed on at once even if it ends like the beginning of a token: a request may end with any byte, and its
// last one must not wait for the request after it. Should a token follow, the session that got its first bytes ends.
type scanner struct {
	token  Token
	passed int // bytes at the front of the next stream that were passed on already
	skip   int // bytes ahead that were the epoch of a start: not data, but a token may begin among them
	start  func(Epoch)
	data   func([]byte)
}

// Scan handles stream and returns how many bytes at its end may be the beginning of a preamble. A host can die
// at any byte of its preamble, so the epoch takes part in the search for the next token.
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

// partialToken returns the length of the longest proper prefix of the token that stream ends with.
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
