package api

import (
	"bytes"
	"encoding/binary"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/output"
)

// The fuzzer's input decides in which pieces a job prints to which stream, and when frames are sent. The frames must
// contain exactly what was printed, without gaps or repetitions, and no frame may be empty.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("hello"), int64(0), int64(0))
	f.Add([]byte{0, 1, 2, 3, 250, 251, 252, 253, 254, 255}, int64(3), int64(1<<40))
	f.Fuzz(func(t *testing.T, script []byte, stdoutFrom, stderrFrom int64) {
		from := [2]int64{stdoutFrom & 0xff, stderrFrom & 0xff}
		recorder := httptest.NewRecorder()
		s := &outputStream{w: recorder}
		var printed [2]bytes.Buffer
		for i := range s.sources {
			buffer := output.NewBuffer(1<<20, t.TempDir(), new(freeze.Gate))
			mustAppend(t, buffer, make([]byte, from[i])) // what an earlier session received
			s.sources[i] = source{frame: byte(frameStdout + i), buffer: buffer, offset: from[i]}
		}
		for _, step := range script {
			if step%5 == 0 {
				send(t, s)
				continue
			}
			piece := bytes.Repeat([]byte{step}, 1+int(step)*int(step))
			to := int(step & 1)
			mustAppend(t, s.sources[to].buffer, piece)
			printed[to].Write(piece)
		}
		send(t, s)
		got := readFrames(t, recorder.Body.Bytes(), from)
		for i := range printed {
			_, end, _ := s.sources[i].buffer.Extent()
			if want := printed[i].Bytes()[:end-from[i]]; !bytes.Equal(got[i], want) {
				t.Fatalf("stream %d: %d bytes of %d", i, len(got[i]), len(want))
			}
		}
	})
}

func mustAppend(t *testing.T, buffer *output.Buffer, data []byte) {
	t.Helper()
	if _, err := buffer.Append(data); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, s *outputStream) {
	t.Helper()
	for {
		sent, err := s.sendAvailable()
		if err != nil {
			t.Fatal(err)
		}
		if !sent {
			return
		}
	}
}

// readFrames reads frames as the host does.
func readFrames(t *testing.T, stream []byte, from [2]int64) (got [2][]byte) {
	t.Helper()
	for len(stream) > 0 {
		if len(stream) < headerSize {
			t.Fatalf("%d bytes are no header", len(stream))
		}
		i := int(binary.BigEndian.Uint32(stream)>>24) - frameStdout
		length := int(binary.BigEndian.Uint32(stream[4:]))
		offset := int64(binary.BigEndian.Uint64(stream[8:]))
		stream = stream[headerSize:]
		if i < 0 || i > 1 || length == 0 || length > maxPayload || length > len(stream) {
			t.Fatalf("a frame of stream %d with %d bytes", i, length)
		}
		if want := from[i] + int64(len(got[i])); offset != want {
			t.Fatalf("offset %d, want %d", offset, want)
		}
		got[i] = append(got[i], stream[:length]...)
		stream = stream[length:]
	}
	return got
}

func FuzzOffsets(f *testing.F) {
	f.Add("stdout=1&stderr=2")
	f.Add("stdout=9223372036854775807&stderr=")
	f.Add("stdout=-1")
	f.Fuzz(func(t *testing.T, query string) {
		found, err := parseOffsets(&url.URL{RawQuery: query})
		if err != nil {
			return
		}
		if found.Stdout < 0 || found.Stderr < 0 {
			t.Fatalf("%+v", found)
		}
		again := "stdout=" + strconv.FormatInt(found.Stdout, 10) + "&stderr=" + strconv.FormatInt(found.Stderr, 10)
		if same, err := parseOffsets(&url.URL{RawQuery: again}); err != nil || same != found {
			t.Fatalf("%+v, then %+v, %v", found, same, err)
		}
	})
}
