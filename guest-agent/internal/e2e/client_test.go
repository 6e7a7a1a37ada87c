// Package e2e tests the agent as the host uses it: frames on a byte stream that starts with a preamble. The same client
// talks to an agent in this process or to a real machine.
package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"sandbar/guest-agent/internal/channel"
	"sandbar/guest-agent/internal/frames"
	"sandbar/guest-agent/internal/jobs"
)

// host is the host's side of one session.
type host struct {
	t       *testing.T
	session *session
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
				current.end(err)
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
	echo := slices.Concat(token[:], epoch[:])
	for i := channel.TokenSize; i < len(echo); i++ {
		echo[i] = ^echo[i]
	}
	next := &session{port: p, echo: echo, calls: make(map[uint32]*response)}
	p.writing.Lock()
	defer p.writing.Unlock()
	p.mu.Lock()
	if p.current != nil {
		p.current.end(net.ErrClosed)
	}
	p.current = next
	p.mu.Unlock()
	_, err := p.Conn.Write(slices.Concat(channel.Hello[:], token[:], epoch[:]))
	return next, err
}

func newHost(t *testing.T, conn *port, token channel.Token) *host {
	t.Helper()
	session, err := conn.openSession(token)
	if err != nil {
		t.Fatal(err)
	}
	return &host{t: t, session: session}
}

// try sends a request and waits for the first frame of its answer. The end of the context cancels the call.
func (h *host) try(ctx context.Context, method, path string, body any) (*response, error) {
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
	r, err := h.session.request(method+" "+path, content)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, r.cancel)
	h.t.Cleanup(func() { stop() })
	first, err := r.next()
	if err != nil {
		return nil, err
	}
	r.code, r.body = first.status, first.payload
	return r, nil
}

func (h *host) send(ctx context.Context, method, path string, body any) *response {
	h.t.Helper()
	r, err := h.try(ctx, method, path, body)
	if err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// call sends a request and returns the status and the body of the answer.
func (h *host) call(method, path string, body any) (int, string) {
	h.t.Helper()
	r := h.send(context.Background(), method, path, body)
	return r.code, string(r.body)
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
	result := &outcome{code: response.code}
	if result.code > 201 {
		h.t.Fatalf("job %s: %d %s", id, result.code, response.body)
	}
	if err := result.read(response, 0, 0); err != nil {
		h.t.Fatalf("job %s: %v", id, err)
	}
	return result
}

func (h *host) sh(id, command string) *outcome {
	h.t.Helper()
	return h.run(id, map[string]any{"command": command})
}

// read reads frames up to the end of the stream. It returns an error if the offsets have a gap or the end is missing.
func (o *outcome) read(r *response, stdout, stderr int64) error {
	next := map[byte]int64{frames.KindStdout: stdout, frames.KindStderr: stderr}
	for {
		frame, err := r.next()
		if err != nil {
			return err
		}
		switch frame.kind {
		case frames.KindStdout, frames.KindStderr:
			if frame.offset != next[frame.kind] {
				return fmt.Errorf("frame of kind %d at %d, want %d", frame.kind, frame.offset, next[frame.kind])
			}
			next[frame.kind] += int64(len(frame.payload))
			if frame.kind == frames.KindStdout {
				o.stdout = append(o.stdout, frame.payload...)
			} else {
				o.stderr = append(o.stderr, frame.payload...)
			}
		case frames.KindEnd:
			o.status = new(jobs.Status)
			return json.Unmarshal(frame.payload, o.status)
		default:
			return fmt.Errorf("frame of kind %d", frame.kind)
		}
	}
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
