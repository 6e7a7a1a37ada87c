package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sandbar/guest-agent/internal/jobs"
)

// open starts a job with an open standard input and returns its output stream.
func (h *host) open(id string, request map[string]any) *response {
	h.t.Helper()
	request["stdin_open"] = true
	r := h.send(context.Background(), "PUT", "/jobs/"+id, request)
	if r.code != 201 {
		h.t.Fatalf("job %s: %d %s", id, r.code, r.body)
	}
	return r
}

// stdin is the request of jobs.stdin.
type stdin struct {
	ID     string `json:"id"`
	Offset int    `json:"offset"`
	Data   []byte `json:"data"`
	Close  bool   `json:"close"`
	WaitMs int    `json:"wait_ms"`
}

func (h *host) put(wanted int, request stdin) string {
	h.t.Helper()
	return h.expect(wanted, "POST", "/calls/jobs.stdin", request)
}

func progress(next int, closed bool) string {
	return fmt.Sprintf(`{"next_offset":%d,"closed":%t}`, next, closed)
}

func (h *host) expectPut(want string, request stdin) {
	h.t.Helper()
	if got := h.put(200, request); got != want {
		h.t.Errorf("%s, want %s", got, want)
	}
}

// outputUntil reads the output stream until it ends with text.
func outputUntil(t *testing.T, r *response, text string) {
	t.Helper()
	var got []byte
	for !bytes.HasSuffix(got, []byte(text)) {
		frame, err := r.output()
		if err != nil {
			t.Fatalf("%q, then %v", got, err)
		}
		got = append(got, frame.payload...)
	}
}

func TestAProgramIsDrivenLineByLine(t *testing.T) {
	h := startAgent(t).connect(t)
	out := h.open("j", map[string]any{"command": "while read -r a b; do echo $((a + b)); done; echo end"})
	offset := 0
	for i, line := range []string{"1 2\n", "30 4\n", "500 6\n"} {
		offset += len(line)
		h.expectPut(progress(offset, false), stdin{ID: "j", Offset: offset - len(line), Data: []byte(line), WaitMs: 1000})
		outputUntil(t, out, []string{"3\n", "34\n", "506\n"}[i])
	}
	h.expectPut(progress(offset, true), stdin{ID: "j", Offset: offset, Close: true})
	outputUntil(t, out, "end\n")
}

func TestAByteIsWrittenOnceHoweverOftenItIsSent(t *testing.T) {
	h := startAgent(t).connect(t)
	out := h.open("j", map[string]any{"argv": []string{"cat"}, "stdin": []byte("first ")})
	h.expectPut(progress(9, false), stdin{ID: "j", Offset: 6, Data: []byte("abc"), WaitMs: 1000})
	h.expectPut(progress(9, false), stdin{ID: "j", Offset: 6, Data: []byte("abc"), WaitMs: 1000})
	h.expectPut(progress(9, false), stdin{ID: "j", Offset: 0, WaitMs: 1000})
	h.expectPut(progress(11, false), stdin{ID: "j", Offset: 7, Data: []byte("bcde"), WaitMs: 1000})
	if got := h.put(409, stdin{ID: "j", Offset: 12, Data: []byte("x")}); !strings.Contains(got, "the next byte that the job takes is at 11") {
		t.Error(got)
	}
	h.expectPut(progress(12, true), stdin{ID: "j", Offset: 11, Data: []byte("f"), Close: true, WaitMs: 1000})
	h.expectPut(progress(12, true), stdin{ID: "j", Offset: 11, Data: []byte("f"), Close: true, WaitMs: 1000})
	if got := h.put(409, stdin{ID: "j", Offset: 12, Data: []byte("g")}); !strings.Contains(got, "closed at byte 12") &&
		!strings.Contains(got, "has ended") {
		t.Error(got)
	}
	var result outcome
	if err := result.read(out, 0, 0); err != nil || result.String() != "exited 0 null|first abcdef|" {
		t.Errorf("%s, %v", result.String(), err)
	}
	if got := h.status("j").StdinBytes; got == nil || *got != 12 {
		t.Errorf("stdin_bytes %v", got)
	}
	// The job has ended. What was accepted before is still a repetition, and new bytes are refused.
	h.expectPut(progress(12, true), stdin{ID: "j", Offset: 6, Data: []byte("abc"), Close: true})
	if got := h.put(409, stdin{ID: "j", Offset: 12, Data: []byte("g")}); !strings.Contains(got, "the job has ended") {
		t.Error(got)
	}
}

func TestParallelRepetitionsAreWrittenOnce(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	out := h.open("j", map[string]any{"argv": []string{"sha256sum"}})
	content := make([]byte, 900_000)
	_, _ = rand.Read(content)
	for offset := 0; offset < len(content); offset += 100_000 {
		var all sync.WaitGroup
		for range 16 {
			all.Add(1)
			go func() {
				defer all.Done()
				request := stdin{ID: "j", Offset: offset, Data: content[offset : offset+100_000], WaitMs: 20_000}
				if got := h.put(200, request); got != progress(offset+100_000, false) {
					t.Error(got)
				}
			}()
		}
		all.Wait()
	}
	h.put(200, stdin{ID: "j", Offset: len(content), Close: true})
	outputUntil(t, out, fmt.Sprintf("%x  -\n", sha256.Sum256(content)))
}

func TestARequestWaitsForACommandThatDoesNotRead(t *testing.T) {
	h := startAgent(t).connect(t)
	h.open("j", map[string]any{"argv": []string{"sleep", "1000"}})
	content := make([]byte, 100_000)
	var got jobs.InputProgress
	if err := json.Unmarshal([]byte(h.put(200, stdin{ID: "j", Data: content, Close: true, WaitMs: 50})), &got); err != nil {
		t.Fatal(err)
	}
	if got.Closed || got.NextOffset != 64<<10 {
		t.Errorf("%+v, want what a pipe holds", got)
	}
	full := stdin{ID: "j", Offset: int(got.NextOffset), Data: content[got.NextOffset:]}
	h.expectPut(progress(int(got.NextOffset), false), full)
	// While one request waits, others are answered when their own time is over.
	slow := full
	slow.WaitMs = 60_000
	body, _ := json.Marshal(slow)
	r, err := h.session.request("POST /calls/jobs.stdin", body)
	if err != nil {
		t.Fatal(err)
	}
	h.expectPut(progress(int(got.NextOffset), false), full)
	h.put(409, stdin{ID: "j", Offset: 100_000, Data: []byte("x")})
	r.cancel()
	h.expectPut(progress(int(got.NextOffset), true), stdin{ID: "j", Close: true, WaitMs: 20_000})
}

func TestAnEndOfTheJobEndsARequestThatWaits(t *testing.T) {
	h := startAgent(t).connect(t)
	h.open("j", map[string]any{"argv": []string{"sleep", "1000"}})
	done := make(chan string)
	go func() { done <- h.put(409, stdin{ID: "j", Data: make([]byte, 100_000), WaitMs: 60_000}) }()
	eventually(t, "the pipe is full", func() bool { return *h.status("j").StdinBytes == 64<<10 })
	h.expect(200, "POST", "/calls/jobs.signal", map[string]string{"id": "j", "signal": "KILL"})
	if got := <-done; !strings.Contains(got, "has ended") && !strings.Contains(got, "has closed its standard input") {
		t.Error(got)
	}
	eventually(t, "the job ends", func() bool { return h.status("j").State != jobs.Running })
	h.expectPut(progress(64<<10, true), stdin{ID: "j", Close: true})
}

func TestACommandThatClosesItsStdinRefusesMore(t *testing.T) {
	h := startAgent(t).connect(t)
	out := h.open("j", map[string]any{"command": "read -r line; exec 0<&-; echo $line; exec sleep 1000"})
	h.expectPut(progress(3, false), stdin{ID: "j", Data: []byte("hi\n"), WaitMs: 1000})
	outputUntil(t, out, "hi\n")
	if got := h.put(409, stdin{ID: "j", Offset: 3, Data: []byte("x"), WaitMs: 1000}); !strings.Contains(got, "the command has closed its standard input") {
		t.Error(got)
	}
	h.expectPut(progress(3, true), stdin{ID: "j", Data: []byte("hi\n"), Close: true})
}

func TestTheFirstBytesMayBeMoreThanAPipeHolds(t *testing.T) {
	h := startAgent(t).connect(t)
	first := make([]byte, 400_000)
	_, _ = rand.Read(first)
	out := h.open("j", map[string]any{"command": "sleep 0.2; sha256sum", "stdin": first})
	h.expectPut(progress(400_004, true), stdin{ID: "j", Offset: 400_000, Data: []byte("rest"), Close: true, WaitMs: 20_000})
	outputUntil(t, out, fmt.Sprintf("%x  -\n", sha256.Sum256(append(first, "rest"...))))
}

func TestStdinRequestsThatAreRefused(t *testing.T) {
	h := startAgent(t).connect(t)
	h.send(t.Context(), "PUT", "/jobs/shut", map[string]any{"argv": []string{"sleep", "1000"}})
	if got := h.put(409, stdin{ID: "shut", Data: []byte("x")}); !strings.Contains(got, "without stdin_open") {
		t.Error(got)
	}
	h.put(404, stdin{ID: "no"})
	h.put(400, stdin{ID: "shut", Offset: -1})
	h.put(400, stdin{ID: "shut", WaitMs: 60_001})
	h.expect(400, "POST", "/calls/jobs.stdin", `{"id":"shut","data":"?"}`)
	h.expect(400, "POST", "/calls/jobs.signal", `{"id":"shut","signal":"SIGINT"}`)
	h.expect(404, "POST", "/calls/jobs.signal", `{"id":"no","signal":"INT"}`)
	if got := h.sh("failed", "exit 3"); got.status.StdinBytes != nil {
		t.Error(*got.status.StdinBytes)
	}
	missing := h.run("missing", map[string]any{"argv": []string{"no-such-program"}, "stdin_open": true, "stdin": []byte("abc")})
	if missing.status.StdinBytes == nil || *missing.status.StdinBytes != 3 {
		t.Errorf("%s %v", missing, missing.status.StdinBytes)
	}
	h.put(409, stdin{ID: "missing", Offset: 3, Data: []byte("x")})
	h.expectPut(progress(3, true), stdin{ID: "missing", Close: true})
}

func TestASignalReachesTheFirstProcess(t *testing.T) {
	h := startAgent(t).connect(t)
	for name, exit := range map[string]string{"INT": "10", "TERM": "11", "HUP": "12", "USR1": "13", "USR2": "14", "QUIT": "15"} {
		command := fmt.Sprintf("trap 'exit %s' %s; echo ready; while :; do sleep 0.01; done", exit, name)
		out := h.open(name, map[string]any{"command": command})
		outputUntil(t, out, "ready\n")
		if got := h.expect(200, "POST", "/calls/jobs.signal", map[string]string{"id": name, "signal": name}); got != "{}" {
			t.Error(got)
		}
		var result outcome
		if err := result.read(out, 6, 0); err != nil || result.String() != "exited "+exit+" null||" {
			t.Errorf("%s: %s %v", name, result.String(), err)
		}
		// A job that has ended takes any signal without effect.
		h.expect(200, "POST", "/calls/jobs.signal", map[string]string{"id": name, "signal": "KILL"})
	}
}

// In a machine that is made from a memory snapshot, nobody can write to the jobs of the old machine any more. So their
// input ends.
func TestTheStdinOfAJobThatIsLetGoEnds(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	seen := t.TempDir() + "/seen"
	h.open("j", map[string]any{"command": "cat; echo x > " + seen})
	done := make(chan string)
	h.open("full", map[string]any{"argv": []string{"sleep", "1000"}})
	go func() { done <- h.put(409, stdin{ID: "full", Data: make([]byte, 100_000), WaitMs: 60_000}) }()
	eventually(t, "the pipe is full", func() bool { return *h.status("full").StdinBytes == 64<<10 })
	a.registry.LetGo()
	<-done
	eventually(t, "the input of the old job ends", func() bool {
		_, err := os.Stat(seen)
		return err == nil
	})
	h.put(404, stdin{ID: "j", Data: []byte("x")})
	h.open("j", map[string]any{"argv": []string{"cat"}})
	h.expectPut(progress(1, false), stdin{ID: "j", Data: []byte("x"), WaitMs: 1000})
}

func TestAWriteIsExactWhileSessionsBreak(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	h.open("hash", map[string]any{"command": "cat | sha256sum"})
	content := make([]byte, 3_000_000)
	_, _ = rand.Read(content)
	for offset := 0; offset < len(content); {
		piece := content[offset:min(offset+128<<10, len(content))]
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(offset/1000%5)*time.Millisecond)
		r, err := h.try(ctx, "POST", "/calls/jobs.stdin", stdin{ID: "hash", Offset: offset, Data: piece, WaitMs: 20_000})
		cancel()
		if err != nil { // canceled on the way: the same bytes are sent again, in a new session
			h = a.connect(t)
			if next := h.put(200, stdin{ID: "hash", WaitMs: 20_000}); next == "" {
				t.Fatal(next)
			}
			h.put(200, stdin{ID: "hash", Offset: offset, Data: piece, WaitMs: 20_000})
		} else if r.code != 200 {
			t.Fatalf("%d %s", r.code, r.body)
		}
		var now jobs.InputProgress
		if err := json.Unmarshal([]byte(h.put(200, stdin{ID: "hash"})), &now); err != nil {
			t.Fatal(err)
		}
		offset = int(now.NextOffset)
	}
	h.put(200, stdin{ID: "hash", Offset: len(content), Close: true, WaitMs: 20_000})
	out := h.send(t.Context(), "GET", "/jobs/hash/stream", nil)
	outputUntil(t, out, fmt.Sprintf("%x  -\n", sha256.Sum256(content)))
}
