package e2e

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync"
	"testing"

	"sandbar/guest-agent/internal/frames"
)

// endInput tells the guest that the host sends no more.
func (s *stream) endInput() error { return s.session.send(frames.KindInputEnd, s.id, nil) }

// upload writes a file with files.write and returns the error of the stream, such as "507 …" or "disk_full: …".
func (h *host) upload(params map[string]any, content io.Reader) error {
	h.t.Helper()
	s, err := h.tryStream("files.write", params, nil)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(onlyWriter{s}, content)
		if err == nil {
			err = s.endInput()
		}
		sent <- err
	}()
	if _, err := io.ReadAll(s); err != nil {
		return err
	}
	if err := s.failure(); err != nil {
		return err // the guest takes no more, so the rest is not sent
	}
	return <-sent
}

// download reads a file with files.read, or an archive.
func (h *host) download(name string, params map[string]any, to io.Writer) error {
	h.t.Helper()
	s, err := h.tryStream(name, params, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, s); err != nil {
		return err
	}
	return s.failure()
}

// failure returns the error with which the guest has ended a stream.
func (s *stream) failure() error {
	var end struct {
		Error *struct{ Code, Detail string }
	}
	if err := json.Unmarshal(s.end, &end); err != nil || end.Error == nil {
		return err
	}
	return fmt.Errorf("%s: %s", end.Error.Code, end.Error.Detail)
}

// onlyWriter hides the other methods of a stream.
type onlyWriter struct{ io.Writer }

// noise is a reader of any number of bytes that do not repeat within 64 KiB. It hashes what was read.
type noise struct {
	left  int64
	hash  hash.Hash
	block [256 << 10]byte
	count byte
}

func newNoise(size int64) *noise {
	n := &noise{left: size, hash: sha256.New()}
	_, _ = rand.Read(n.block[:])
	return n
}

func (n *noise) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	n.count++
	size := copy(p[:min(int64(len(p)), n.left)], n.block[n.count:])
	n.left -= int64(size)
	n.hash.Write(p[:size])
	return size, nil
}

func (n *noise) sum() string { return hex.EncodeToString(n.hash.Sum(nil)) }

func TestFilesOverTheChannel(t *testing.T) {
	h := startAgent(t).connect(t)
	folder := t.TempDir()
	content := newNoise(5 << 20)
	if err := h.upload(map[string]any{"path": folder + "/new/file", "parents": true}, content); err != nil {
		t.Fatal(err)
	}
	got := sha256.New()
	if err := h.download("files.read", map[string]any{"path": folder + "/new/file"}, got); err != nil || hex.EncodeToString(got.Sum(nil)) != content.sum() {
		t.Errorf("%x, %v, want %s", got.Sum(nil), err, content.sum())
	}
	var answer struct{ Entries []struct{ Path string } }
	h.guestCall("files.list", map[string]any{"path": folder, "depth": 2}, &answer)
	if got := fmt.Sprint(answer.Entries); got != "[{"+folder+"/new} {"+folder+"/new/file}]" {
		t.Error(got)
	}
	for params, want := range map[string]int{`{"path":"` + folder + `/missing"}`: 404, `{"path":"` + folder + `/new/file/x"}`: 409, `{}`: 400, `{"path":"/%00"}`: 400} {
		h.expect(want, "POST", "/calls/files.entry", params)
		h.expect(want, "POST", "/streams/files.read", params)
	}
}

func TestAnUploadThatTheHostCancelsLeavesTheOldFile(t *testing.T) {
	h := startAgent(t).connect(t)
	folder := t.TempDir()
	params := map[string]any{"path": folder + "/file"}
	if err := h.upload(params, strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	s := h.guestStream("files.write", params, nil)
	if _, err := s.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	s.cancel()
	h.expectFile(folder+"/file", "old")
	// The end of the session cuts an upload too.
	s = h.guestStream("files.write", params, nil)
	if _, err := s.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	h = newHost(t, h.session.port, testToken)
	h.expectFile(folder+"/file", "old")
	var answer struct{ Entries []struct{ Path string } }
	h.guestCall("files.list", map[string]any{"path": folder}, &answer)
	if len(answer.Entries) != 1 {
		t.Error(answer)
	}
}

func (h *host) expectFile(path, want string) {
	h.t.Helper()
	got := new(strings.Builder)
	if err := h.download("files.read", map[string]any{"path": path}, got); err != nil || got.String() != want {
		h.t.Errorf("%s: %.100q, %v, want %.100q", path, got, err, want)
	}
}

// inParallel calls a function for each number below count, up to ten at once, as a client does.
func inParallel(count int, call func(int) error) error {
	var group sync.WaitGroup
	numbers, failed := make(chan int), make(chan error, count)
	for range 10 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range numbers {
				if err := call(i); err != nil {
					failed <- err
				}
			}
		}()
	}
	for i := range count {
		numbers <- i
	}
	close(numbers)
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
