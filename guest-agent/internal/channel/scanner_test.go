package channel

import (
	"bytes"
	"slices"
	"testing"
)

var (
	testToken  = Token([]byte("abababababababababababababababaX"))
	otherToken = Token([]byte("cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcX"))
)

type heardStart struct {
	token Token
	epoch Epoch
}

// recorder records the calls of a scanner.
type recorder struct {
	starts []heardStart
	data   []byte // data of the current session only; each start clears it
}

// scanAll passes stream to a scanner that searches for known (nil: that accepts every token) in pieces, as Channel.Run
// does. The lengths of the pieces come from cuts, repeated.
func scanAll(known *Token, stream, cuts []byte) *recorder {
	var heard recorder
	s := scanner{
		known: func() *Token { return known },
		start: func(t Token, e Epoch) { heard.starts = append(heard.starts, heardStart{t, e}); heard.data = nil },
		data:  func(b []byte) { heard.data = append(heard.data, b...) },
	}
	var held []byte
	for i := 0; len(stream) > 0; i++ {
		n := len(stream)
		if len(cuts) > 0 {
			n = min(n, 1+int(cuts[i%len(cuts)]))
		}
		piece := slices.Concat(held, stream[:n])
		stream = stream[n:]
		held = piece[len(piece)-s.Scan(piece):]
	}
	return &heard
}

func preambleOf(token Token, epoch string) []byte {
	return slices.Concat(Hello[:], token[:], []byte(epoch))
}

func TestSessionStartsAtItsPreambleHoweverItIsCut(t *testing.T) {
	preamble := preambleOf(testToken, "epoch--1")
	for name, before := range map[string][]byte{
		"at once":                       nil,
		"after noise":                   []byte("noise"),
		"after a part of the hello":     preamble[:20],
		"after a part of the token":     preamble[:50],
		"after a part of the epoch":     preamble[:67],
		"after all but the last byte":   preamble[:71],
		"after another session":         slices.Concat(preamble, []byte("old data")),
		"after a session's partial end": slices.Concat(preamble, []byte("old"), preamble[:63]),
	} {
		for _, known := range []*Token{nil, &testToken} {
			for cut := range 80 {
				stream := slices.Concat(before, preambleOf(testToken, "EPOCH--2"), []byte("GET / abab"), []byte("end"))
				heard := scanAll(known, stream, []byte{byte(cut)})
				want := heardStart{testToken, Epoch([]byte("EPOCH--2"))}
				if len(heard.starts) == 0 || heard.starts[len(heard.starts)-1] != want {
					t.Fatalf("%s, cut at %d: starts %q", name, cut, heard.starts)
				}
				if string(heard.data) != "GET / ababend" {
					t.Fatalf("%s, cut at %d: data %q", name, cut, heard.data)
				}
			}
		}
	}
}

func TestOnlyTheKnownTokenStartsASession(t *testing.T) {
	stream := slices.Concat([]byte("before"), preambleOf(otherToken, "epoch--1"), []byte("after"))
	for cut := range 80 {
		if heard := scanAll(&testToken, stream, []byte{byte(cut)}); len(heard.starts) > 0 || !bytes.Equal(heard.data, stream) {
			t.Fatalf("cut at %d: starts %q, data %q", cut, heard.starts, heard.data)
		}
	}
	if heard := scanAll(nil, stream, nil); len(heard.starts) != 1 || heard.starts[0].token != otherToken {
		t.Fatalf("starts %q", heard.starts)
	}
}

// A request may end with bytes that look like the beginning of a preamble. It must be passed on without waiting for the
// next request.
func TestDataThatEndsLikeAPreambleIsPassedOnAtOnce(t *testing.T) {
	for _, known := range []*Token{nil, &testToken} {
		for _, end := range []string{"", "a", "abab", string(testToken[:31]), string(Hello[:31])} {
			var got []byte
			s := scanner{
				known: func() *Token { return known },
				start: func(Token, Epoch) {},
				data:  func(b []byte) { got = append(got, b...) },
			}
			first := "request " + end
			held := s.Scan([]byte(first))
			if string(got) != first {
				t.Errorf("%q: only %q was passed on", first, got)
			}
			s.Scan([]byte(first[len(first)-held:] + ", next"))
			if string(got) != first+", next" {
				t.Errorf("%q: then %q", first, got)
			}
		}
	}
}

func FuzzScanner(f *testing.F) {
	f.Add(slices.Concat(testToken[:], []byte("12345678data")), []byte{3})
	f.Add(slices.Concat(Hello[:], testToken[:], []byte("12345678data")), []byte{3})
	f.Add(slices.Concat(testToken[:30], testToken[:], Hello[:], testToken[:]), []byte{40, 1})
	f.Fuzz(func(t *testing.T, stream, cuts []byte) {
		// Replace each "T" by the token and each "H" by the hello, because the fuzzer would never guess them.
		stream = bytes.ReplaceAll(stream, []byte("T"), testToken[:])
		stream = bytes.ReplaceAll(stream, []byte("H"), Hello[:])
		stream = append(stream, bytes.Repeat([]byte("."), TokenSize+EpochSize)...) // so that Scan holds no bytes back
		check(t, &testToken, testToken[:], EpochSize, stream, cuts)
		check(t, nil, Hello[:], TokenSize+EpochSize, stream, cuts)
	})
}

// check compares what a scanner hears with what it should hear when each preamble is mark and rest more bytes.
func check(t *testing.T, known *Token, mark []byte, rest int, stream, cuts []byte) {
	t.Helper()
	whole, cut := scanAll(known, stream, nil), scanAll(known, stream, cuts)
	if !slices.Equal(whole.starts, cut.starts) || !bytes.Equal(whole.data, cut.data) {
		t.Fatalf("whole: %q %q\ncut: %q %q", whole.starts, whole.data, cut.starts, cut.data)
	}
	at := bytes.LastIndex(stream, mark)
	if at < 0 {
		if len(whole.starts) != 0 || !bytes.Equal(whole.data, stream) {
			t.Fatalf("no preamble: %q %q", whole.starts, whole.data)
		}
		return
	}
	end := at + len(mark) + rest
	last := whole.starts[len(whole.starts)-1]
	if !bytes.Equal(slices.Concat(last.token[:], last.epoch[:]), stream[end-TokenSize-EpochSize:end]) {
		t.Fatalf("last start %q", last)
	}
	if !bytes.Equal(whole.data, stream[end:]) {
		t.Fatalf("data %q", whole.data)
	}
}
