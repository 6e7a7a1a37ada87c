package api

import (
	"bytes"
	"encoding/binary"
	"io"
	"strconv"
	"testing"

	"sandbar/guest-agent/internal/frames"
	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/output"
)

// The fuzzer's input decides in which pieces a job prints to which stream, and when frames are sent. The frames must
// contain exactly what was printed, without gaps or repetitions, and no frame may be empty.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("hello"), int64(0), int64(0))
	f.Add([]byte{0, 1, 2, 3, 250, 251, 252, 253, 254, 255}, int64(3), int64(1<<40))
	f.Fuzz(func(t *testing.T, script []byte, stdoutFrom, stderrFrom int64) {
		from := [2]int64{stdoutFrom & 0xff, stderrFrom & 0xff}
		var printed [2]bytes.Buffer
		var kept [2]int64
		sent := withCall(func(c *frames.Call) {
			s := &outputStream{call: c}
			for i := range s.sources {
				buffer := output.NewBuffer(1<<20, t.TempDir(), new(freeze.Gate))
				mustAppend(t, buffer, make([]byte, from[i])) // what an earlier session received
				s.sources[i] = source{stream: frames.Stdout + frames.Stream(i), buffer: buffer, offset: from[i]}
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
			c.End(nil)
			for i := range kept {
				_, end, _ := s.sources[i].buffer.Extent()
				kept[i] = end - from[i]
			}
		})
		got := readFrames(t, sent, from)
		for i := range printed {
			if want := printed[i].Bytes()[:kept[i]]; !bytes.Equal(got[i], want) {
				t.Fatalf("stream %d: %d bytes of %d", i, len(got[i]), len(want))
			}
		}
	})
}

// withCall runs a handler with a call that has 4 GiB of credit, and returns what the handler has sent.
func withCall(handle func(*frames.Call)) []byte {
	request := "\x00\x07GET /jo"
	stream := &recorded{
		in:   []byte("\x00\x00\x00\x09\x01\x00\x00\x00\x01" + request + "\x00\x00\x00\x04\x02\x00\x00\x00\x01\xff\xff\xff\xff"),
		done: make(chan struct{}),
	}
	sessions := make(listener, 1)
	sessions <- stream
	close(sessions)
	_ = frames.Serve(sessions, func(c *frames.Call) {
		<-c.Granted()
		handle(c)
		close(stream.done)
	}, nil)
	<-stream.done
	return stream.out.Bytes()
}

// recorded is a session that has received in, and records what it sends. It lives until done is closed.
type recorded struct {
	in   []byte
	out  bytes.Buffer
	done chan struct{}
}

func (r *recorded) Read(b []byte) (int, error) {
	if len(r.in) == 0 {
		<-r.done
		return 0, io.EOF
	}
	n := copy(b, r.in)
	r.in = r.in[n:]
	return n, nil
}

func (r *recorded) Write(b []byte) (int, error) { return r.out.Write(b) }
func (r *recorded) Close() error                { return nil }

type listener chan io.ReadWriteCloser

func (l listener) Accept() (io.ReadWriteCloser, error) {
	if stream, ok := <-l; ok {
		return stream, nil
	}
	return nil, io.EOF
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
		sent, _, err := s.sendAvailable()
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
		length, kind := int(binary.BigEndian.Uint32(stream)), stream[4]
		payload := stream[9 : 9+length]
		stream = stream[9+length:]
		if kind == 68 && len(stream) == 0 {
			return got
		}
		i, bytes := int(kind)-66, length-8
		if i < 0 || i > 1 || bytes <= 0 || bytes > frames.MaxOutput {
			t.Fatalf("a frame of kind %d with %d bytes", kind, bytes)
		}
		if offset, want := int64(binary.BigEndian.Uint64(payload)), from[i]+int64(len(got[i])); offset != want {
			t.Fatalf("offset %d, want %d", offset, want)
		}
		got[i] = append(got[i], payload[8:]...)
	}
	t.Fatal("no end")
	return got
}

func FuzzOffsets(f *testing.F) {
	f.Add("stdout=1&stderr=2")
	f.Add("stdout=9223372036854775807&stderr=")
	f.Add("stdout=-1")
	f.Fuzz(func(t *testing.T, query string) {
		found, err := parseOffsets(query)
		if err != nil {
			return
		}
		if found.Stdout < 0 || found.Stderr < 0 {
			t.Fatalf("%+v", found)
		}
		again := "stdout=" + strconv.FormatInt(found.Stdout, 10) + "&stderr=" + strconv.FormatInt(found.Stderr, 10)
		if same, err := parseOffsets(again); err != nil || same != found {
			t.Fatalf("%+v, then %+v, %v", found, same, err)
		}
	})
}
