package channel

import (
	"bytes"
	"slices"
	"testing"
)

var testToken = Token([]byte("abababababababababababababababaX"))

// recorder records the calls of a scanner.
type recorder struct {
	epochs []Epoch
	data   []byte // data of the current session only; each start clears it
}

// scanAll passes stream to a scanner in pieces, as Channel.Run does. The lengths of the pieces come from cuts,
// repeated.
func scanAll(stream, cuts []byte) *recorder {
	var heard recorder
	s := scanner{
		token: testToken,
		start: func(e Epoch) { heard.epochs = append(heard.epochs, e); heard.data = nil },
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

func TestSessionStartsAtItsPreambleHoweverItIsCut(t *testing.T) {
	preamble := slices.Concat(testToken[:], []byte("epoch--1"))
	for name, before := range map[string][]byte{
		"at once":                       nil,
		"after noise":                   []byte("noise"),
		"after a part of the token":     testToken[:20],
		"after a part of the preamble":  preamble[:35],
		"after all but the last byte":   preamble[:39],
		"after another session":         slices.Concat(preamble, []byte("old data")),
		"after a session's partial end": slices.Concat(preamble, []byte("old"), testToken[:31]),
	} {
		for cut := range 50 {
			stream := slices.Concat(before, testToken[:], []byte("EPOCH--2"), []byte("GET / abab"), []byte("end"))
			heard := scanAll(stream, []byte{byte(cut)})
			if len(heard.epochs) == 0 || heard.epochs[len(heard.epochs)-1] != Epoch([]byte("EPOCH--2")) {
				t.Fatalf("%s, cut at %d: epochs %q", name, cut, heard.epochs)
			}
			if string(heard.data) != "GET / ababend" {
				t.Fatalf("%s, cut at %d: data %q", name, cut, heard.data)
			}
		}
	}
}

// A request may end with bytes that look like the beginning of the token. It must be passed on without waiting for the
// next request.
func TestDataThatEndsLikeATokenIsPassedOnAtOnce(t *testing.T) {
	for _, end := range []string{"", "a", "abab", string(testToken[:31])} {
		var got []byte
		s := scanner{token: testToken, start: func(Epoch) {}, data: func(b []byte) { got = append(got, b...) }}
		first := "request " + end
		held := s.Scan([]byte(first))
		if string(got) != first {
			t.Errorf("%q: only %q was passed on", first, got)
		}
		s.Scan([]byte(first[len(first)-held:] + "next"))
		if string(got) != first+"next" {
			t.Errorf("%q: then %q", first, got)
		}
	}
}

func FuzzScanner(f *testing.F) {
	f.Add(slices.Concat(testToken[:], []byte("12345678data")), []byte{3})
	f.Add(slices.Concat(testToken[:30], testToken[:], testToken[:]), []byte{40, 1})
	f.Fuzz(func(t *testing.T, stream, cuts []byte) {
		// Replace each "T" by the token, because the fuzzer would never guess the token.
		stream = bytes.ReplaceAll(stream, []byte("T"), testToken[:])
		stream = append(stream, "......................................."...) // so that Scan holds no bytes back
		whole, cut := scanAll(stream, nil), scanAll(stream, cuts)
		if !slices.Equal(whole.epochs, cut.epochs) || !bytes.Equal(whole.data, cut.data) {
			t.Fatalf("whole: %q %q\ncut: %q %q", whole.epochs, whole.data, cut.epochs, cut.data)
		}
		at := bytes.LastIndex(stream, testToken[:])
		if at < 0 {
			if len(whole.epochs) != 0 || !bytes.Equal(whole.data, stream) {
				t.Fatalf("no token: %q %q", whole.epochs, whole.data)
			}
			return
		}
		if last := whole.epochs[len(whole.epochs)-1]; !bytes.Equal(last[:], stream[at+32:at+40]) {
			t.Fatalf("last epoch %q", last)
		}
		if !bytes.Equal(whole.data, stream[at+40:]) {
			t.Fatalf("data %q", whole.data)
		}
	})
}
