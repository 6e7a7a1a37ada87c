// Package e2e tests the agent as the host uses it: HTTP/2 over a byte stream that starts with a preamble. The same
// client talks to an agent in this process or to a real machine.
package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sandbar/guest-agent/internal/channel"
	"sandbar/guest-agent/internal/jobs"
)

// host is the host's side of one session.
type host struct {
	t      *testing.T
	client *http.Client
}

// port is the host's end of the channel. A single goroutine reads it and passes all bytes to the current session, so
// that an abandoned session cannot take bytes of the next one.
type port struct {
	net.Conn
	mu      sync.Mutex
	current *session
	writing sync.Mutex // held during a write, so that no bytes of an old session follow the preamble of a new one
}

func newPort(conn net.Conn) *port {
	p := &port{Conn: conn}
	go p.distribute()
	return p
}

func (p *port) distribute() {
	piece := make([]byte, 64<<10)
	for {
		n, err := p.Conn.Read(piece)
		p.mu.Lock()
		current := p.current
		p.mu.Unlock()
		if current != nil {
			current.feed(piece[:n])
		}
		if err != nil {
			if current != nil {
				_ = current.in.CloseWithError(err)
			}
			return
		}
	}
}

// openSession starts a session as the host does: it sends a new preamble. This ends the current session.
func (p *port) openSession(token channel.Token) (*session, error) {
	var epoch channel.Epoch
	if _, err := rand.Read(epoch[:]); err != nil {
		return nil, err
	}
	next := &session{Conn: p.Conn, port: p, echo: slices.Concat(token[:], epoch[:])}
	next.out, next.in = io.Pipe()
	p.writing.Lock()
	defer p.writing.Unlock()
	p.mu.Lock()
	if p.current != nil {
		_ = p.current.in.CloseWithError(net.ErrClosed)
		p.current.ended.Store(true)
	}
	p.current = next
	p.mu.Unlock()
	_, err := p.Conn.Write(slices.Concat(channel.Hello[:], token[:], epoch[:]))
	return next, err
}

type session struct {
	net.Conn
	port  *port
	ended atomic.Bool
	echo  []byte // what to wait for; nil after it has arrived
	seen  []byte // bytes that arrived before the end of the echo
	in    *io.PipeWriter
	out   *io.PipeReader
}

func (s *session) feed(b []byte) {
	if s.echo == nil {
		_, _ = s.in.Write(b)
		return
	}
	s.seen = append(s.seen, b...)
	if at := bytes.Index(s.seen, s.echo); at >= 0 {
		rest := s.seen[at+len(s.echo):]
		s.echo, s.seen = nil, nil
		_, _ = s.in.Write(rest)
	}
}

func (s *session) Read(b []byte) (int, error) { return s.out.Read(b) }

func (s *session) Write(b []byte) (int, error) {
	s.port.writing.Lock()
	defer s.port.writing.Unlock()
	if s.ended.Load() {
		return 0, net.ErrClosed
	}
	return s.Conn.Write(b)
}

// Close ends the session but not the port, because the next session uses the same port.
func (s *session) Close() error { return s.in.CloseWithError(net.ErrClosed) }

func newHost(t *testing.T, conn *port, token channel.Token) *host {
	t.Helper()
	stream, err := conn.openSession(token)
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	streams := make(chan net.Conn, 1)
	streams <- stream
	transport := &http.Transport{
		Protocols: protocols,
		HTTP2:     &http.HTTP2Config{MaxReadFrameSize: 1 << 20},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case stream := <-streams:
				return stream, nil
			default:
				return nil, errors.New("the session is over")
			}
		},
	}
	return &host{t: t, client: &http.Client{Transport: transport}}
}

func (h *host) send(ctx context.Context, method, path string, body any) *http.Response {
	h.t.Helper()
	var content []byte
	switch body := body.(type) {
	case nil:
	case string:
		content = []byte(body)
	default:
		var err error
		if content, err = json.Marshal(body); err != nil {
			h.t.Fatal(err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://guest"+path, bytes.NewReader(content))
	if err != nil {
		h.t.Fatal(err)
	}
	response, err := h.client.Do(request)
	if err != nil {
		h.t.Fatal(err)
	}
	return response
}

// call sends a request and returns the status and the body of the answer.
func (h *host) call(method, path string, body any) (int, string) {
	h.t.Helper()
	response := h.send(context.Background(), method, path, body)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func (h *host) expect(wanted int, method, path string, body any) string {
	h.t.Helper()
	status, content := h.call(method, path, body)
	if status != wanted {
		h.t.Fatalf("%s %s: %d %s, want %d", method, path, status, content, wanted)
	}
	return content
}

// outcome is the content of a job's stream.
type outcome struct {
	code   int
	stdout []byte
	stderr []byte
	status *jobs.Status // nil until the end frame has arrived
}

// run starts a job with PUT and reads its stream to the end.
func (h *host) run(id string, request any) *outcome {
	h.t.Helper()
	response := h.send(context.Background(), "PUT", "/jobs/"+id, request)
	defer response.Body.Close()
	result := &outcome{code: response.StatusCode}
	if result.code > 201 {
		content, _ := io.ReadAll(response.Body)
		h.t.Fatalf("job %s: %d %s", id, result.code, content)
	}
	if err := result.read(response.Body, 0, 0); err != nil {
		h.t.Fatalf("job %s: %v", id, err)
	}
	return result
}

func (h *host) sh(id, command string) *outcome {
	h.t.Helper()
	return h.run(id, map[string]any{"command": command})
}

// read reads frames until the stream ends. It returns an error if the offsets have a gap or the end frame is missing.
func (o *outcome) read(stream io.Reader, stdout, stderr int64) error {
	next := [3]int64{0, stdout, stderr}
	for {
		kind, offset, payload, err := readFrame(stream)
		if err == io.EOF && o.status != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if o.status != nil {
			return errors.New("a frame after the end frame")
		}
		switch kind {
		case 1, 2:
			if offset != next[kind] {
				return fmt.Errorf("frame of stream %d at %d, want %d", kind, offset, next[kind])
			}
			next[kind] += int64(len(payload))
			if kind == 1 {
				o.stdout = append(o.stdout, payload...)
			} else {
				o.stderr = append(o.stderr, payload...)
			}
		case 3:
			o.status = new(jobs.Status)
			if err := json.Unmarshal(payload, o.status); err != nil {
				return err
			}
		default:
			return fmt.Errorf("frame of kind %d", kind)
		}
	}
}

func readFrame(stream io.Reader) (kind byte, offset int64, payload []byte, err error) {
	var header [16]byte
	if _, err := io.ReadFull(stream, header[:]); err != nil {
		return 0, 0, nil, err
	}
	payload = make([]byte, binary.BigEndian.Uint32(header[4:]))
	_, err = io.ReadFull(stream, payload)
	return header[0], int64(binary.BigEndian.Uint64(header[8:])), payload, err
}

func (o *outcome) String() string {
	status := "no end"
	if o.status != nil {
		code, sig := "null", "null"
		if o.status.ExitCode != nil {
			code = fmt.Sprint(*o.status.ExitCode)
		}
		if o.status.Signal != nil {
			sig = *o.status.Signal
		}
		status = fmt.Sprintf("%s %s %s", o.status.State, code, sig)
	}
	return fmt.Sprintf("%s|%s|%s", status, strings.TrimSpace(string(o.stdout)), strings.TrimSpace(string(o.stderr)))
}
