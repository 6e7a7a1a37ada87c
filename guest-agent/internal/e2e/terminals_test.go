package e2e

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"sandbar/guest-agent/internal/identity"
)

const terminalID = "0195a1b2-c3d4-7890-abcd-ef0123456789"

type terminalHead struct {
	Offset     int64
	Cols, Rows int
}

// openTerminal opens a terminal with a command of the shell, or with the login shell if the command is empty.
func (h *host) openTerminal(command string) {
	h.t.Helper()
	request := map[string]any{"id": terminalID, "cols": 80, "rows": 24}
	if command != "" {
		request["command"] = []string{"/bin/sh", "-c", command}
	}
	h.guestCall("terminals.open", request, nil)
}

func (h *host) attach(offset int64) (*stream, terminalHead) {
	h.t.Helper()
	var head terminalHead
	s := h.guestStream("terminals.attach", map[string]any{"id": terminalID, "offset": offset}, &head)
	return s, head
}

// readTo reads until the text ends with wanted, and returns the text.
func (s *stream) readTo(t *testing.T, wanted string) string {
	t.Helper()
	var text []byte
	for piece := make([]byte, 1); !bytes.HasSuffix(text, []byte(wanted)); text = append(text, piece...) {
		if _, err := io.ReadFull(s, piece); err != nil {
			t.Fatalf("%v (%s) after %d bytes: %q", err, s.end, len(text), text[max(0, len(text)-1000):])
		}
	}
	return string(text)
}

func (s *stream) enter(t *testing.T, text string) {
	t.Helper()
	if _, err := s.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// readAll reads to the end of the stream and returns the text and the last message.
func (s *stream) readAll(t *testing.T) (text, end string) {
	t.Helper()
	content, err := io.ReadAll(s)
	if err != nil {
		t.Fatalf("%v after %q", err, content)
	}
	return string(content), string(s.end)
}

func TestATerminalOverTheChannel(t *testing.T) {
	h := startAgent(t).connect(t)
	h.openTerminal("read x; echo got $x; exit 3")
	s, head := h.attach(0)
	if head != (terminalHead{0, 80, 24}) {
		t.Errorf("%+v", head)
	}
	s.enter(t, "one\r")
	if text, end := s.readAll(t); text != "one\r\ngot one\r\n" || end != `{"result":{"exit_code":3,"signal":null}}` {
		t.Errorf("%q %s", text, end)
	}
	late, head := h.attach(5)
	if text, end := late.readAll(t); head.Offset != 5 || text != "got one\r\n" || end != `{"result":{"exit_code":3,"signal":null}}` {
		t.Errorf("%q %s", text, end)
	}
	if got := h.expect(200, "POST", "/calls/terminals.list", map[string]any{}); got != `{"terminals":[]}` {
		t.Error(got)
	}
	h.expect(404, "POST", "/calls/terminals.end", map[string]any{"id": "00000000-0000-4000-8000-000000000000"})
	h.expect(400, "POST", "/calls/terminals.open", map[string]any{})
	h.expect(404, "POST", "/calls/terminals.none", map[string]any{})
}

func TestATerminalOutlivesTheSession(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	h.openTerminal("while read x; do echo $x; done")
	s, _ := h.attach(0)
	offset := int64(0)
	for round := range 20 {
		want := fmt.Sprintf("%d\r\n%d\r\n", round, round)
		s.enter(t, fmt.Sprintf("%d\r", round))
		if got := s.readTo(t, want); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		offset += int64(len(want))
		h = a.connect(t) // a new session ends the old one
		if s, _ = h.attach(offset); round == 19 {
			s.enter(t, "\x04")
			if text, end := s.readAll(t); text != "" || end != `{"result":{"exit_code":0,"signal":null}}` {
				t.Errorf("%q %s", text, end)
			}
		}
	}
}

// Clients of a machine must not take all calls of the session from the host.
func TestManyStreamsLeaveRoomForOtherCalls(t *testing.T) {
	h := startAgent(t).connect(t)
	h.openTerminal("exec cat")
	const most = 210
	var last *stream
	for range most {
		last, _ = h.attach(0)
	}
	if _, err := h.tryStream("terminals.attach", map[string]any{"id": terminalID}, nil); err == nil || !strings.HasPrefix(err.Error(), "409") {
		t.Error(err)
	}
	for i := range 16 {
		h.send(t.Context(), "PUT", fmt.Sprint("/jobs/j", i), map[string]any{"command": "exec sleep 1000"})
	}
	h.expect(200, "GET", "/healthz", nil)
	last.cancel()
	eventually(t, "a stream fits again", func() bool {
		_, err := h.tryStream("terminals.attach", map[string]any{"id": terminalID}, nil)
		return err == nil
	})
}

func TestTerminalsAreRefusedBeforeTheIdentity(t *testing.T) {
	h := startAgentAs(t, identity.Assumed("")).connect(t)
	h.expect(409, "POST", "/calls/terminals.open", map[string]any{"id": terminalID, "cols": 80, "rows": 24})
}

// The identity of another machine lets go of the terminals.
func TestAStreamEndsWhenItsTerminalIsLetGo(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	h.openTerminal("echo on; exec sleep 1000")
	s, _ := h.attach(0)
	s.readTo(t, "on\r\n")
	a.shells.LetGo()
	if text, end := s.readAll(t); text != "" || end != `{"error":{"code":"not_found","detail":"no such terminal"}}` {
		t.Errorf("%q %s", text, end)
	}
}
