package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/freeze"
)

func newFiles() *Files { return New(new(freeze.Gate)) }

// fields are the parameters of a request.
type fields map[string]any

func (p fields) json(t *testing.T) []byte {
	t.Helper()
	content, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// ask calls a call and decodes its answer.
func ask[Answer any](t *testing.T, call calls.Call, params fields) (Answer, error) {
	t.Helper()
	var decoded Answer
	answer, err := call(context.Background(), params.json(t))
	if err != nil {
		return decoded, err
	}
	return decoded, convert(t, answer, &decoded)
}

func convert(t *testing.T, from, into any) error {
	t.Helper()
	content, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
	return nil
}

// must is ask for a call that has to succeed.
func must[Answer any](t *testing.T, call calls.Call, params fields) Answer {
	t.Helper()
	answer, err := ask[Answer](t, call, params)
	if err != nil {
		t.Fatalf("%v: %v", params, err)
	}
	return answer
}

// mustRefuse checks that an error has the code, and a part of the text.
func mustRefuse(t *testing.T, err error, code fault.Code, text string) {
	t.Helper()
	known := new(fault.Error)
	if !errors.As(err, &known) || known.Code != code || !strings.Contains(known.Detail, text) {
		t.Errorf("%v, want %s with %q", err, code, text)
	}
}

// stream is the host's side of a stream.
type stream struct {
	in     io.Reader
	out    io.Writer
	head   []byte
	opened chan struct{} // closed when the head was sent
}

func newStream(in io.Reader, out io.Writer) *stream {
	return &stream{in: in, out: out, opened: make(chan struct{})}
}

func (s *stream) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *stream) Write(p []byte) (int, error) { return s.out.Write(p) }

func (s *stream) open(head any) (calls.Conn, error) {
	var err error
	s.head, err = json.Marshal(head)
	if len(s.head) > 4<<10 {
		return nil, errors.New("the head has more than 4 KiB")
	}
	close(s.opened)
	return s, err
}

// read reads a file through files.read.
func read(t *testing.T, f *Files, params fields) (readHead, string, error) {
	t.Helper()
	content := new(bytes.Buffer)
	s := newStream(strings.NewReader(""), content)
	_, err := f.read(context.Background(), params.json(t), s.open)
	var head readHead
	if s.head != nil {
		if err := json.Unmarshal(s.head, &head); err != nil {
			t.Fatal(err)
		}
	}
	return head, content.String(), err
}

// write writes a file through files.write.
func write(t *testing.T, f *Files, params fields, content string) (Entry, error) {
	t.Helper()
	var result written
	answer, err := f.write(context.Background(), params.json(t), newStream(strings.NewReader(content), io.Discard).open)
	if err != nil {
		return Entry{}, err
	}
	err = convert(t, answer, &result)
	return result.Entry, err
}

func put(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func expectContent(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s: %.100q, %v, want %.100q", path, got, err, want)
	}
}

// namesIn returns the names in a folder, in order.
func namesIn(t *testing.T, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return strings.Join(found, " ")
}

func link(t *testing.T, target, path string) string {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// mountSmall mounts a file system with room for size bytes in memory. It skips the test where it may not.
func mountSmall(t *testing.T, size string) string {
	t.Helper()
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	return folder
}
