// Tests how files are read: whole, in parts, and while they change or belong to the kernel.

package files

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

func TestPartsOfAFile(t *testing.T) {
	f := newFiles()
	path := put(t, t.TempDir()+"/file", "0123456789")
	for _, part := range []struct {
		params fields
		start  int64
		want   string
	}{
		{fields{"start": 3}, 3, "3456789"},
		{fields{"start": 3, "end": 3}, 3, "3"},
		{fields{"end": 4}, 0, "01234"},
		{fields{"start": 8, "end": 99}, 8, "89"},
		{fields{"start": 8, "end": int64(1<<63 - 1)}, 8, "89"},
		{fields{"start": 10}, 10, ""},
		{fields{"start": 99}, 99, ""},
		{fields{"start": 5, "end": 4}, 5, ""},
		{fields{"start": -4}, 6, "6789"},
		{fields{"start": -40}, 0, "0123456789"},
		{fields{"start": -1 << 63}, 0, "0123456789"},
	} {
		part.params["path"] = path
		head, got, err := read(t, f, part.params)
		if err != nil || got != part.want || head.Start != part.start || *head.Length != int64(len(got)) || head.Entry.Size != 10 {
			t.Errorf("%v: %+v, %q, %v", part.params, head, got, err)
		}
	}
	for _, wrong := range []fields{{"end": -1}, {"start": -1, "end": 1}, {"start": 1.5}} {
		wrong["path"] = path
		_, _, err := read(t, f, wrong)
		mustRefuse(t, err, fault.Validation, "")
	}
}

func TestAnEtagChangesWithTheFile(t *testing.T) {
	f := newFiles()
	path := put(t, t.TempDir()+"/file", "old")
	before, _, _ := read(t, f, fields{"path": path})
	if again, got, err := read(t, f, fields{"path": path, "start": 1, "if_etag": before.Etag}); err != nil || got != "ld" || again.Etag != before.Etag {
		t.Errorf("%+v, %q, %v", again, got, err)
	}
	if _, err := write(t, f, fields{"path": path}, "new"); err != nil {
		t.Fatal(err)
	}
	_, _, err := read(t, f, fields{"path": path, "if_etag": before.Etag})
	mustRefuse(t, err, fault.Conflict, "has changed")
}

func TestReadsThatAreRefused(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	file := put(t, folder+"/file", "")
	link(t, "loop", folder+"/loop")
	if err := unix.Mkfifo(folder+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		code fault.Code
		text string
	}{
		folder:              {fault.Conflict, "it is a folder"},
		folder + "/missing": {fault.NotFound, "/missing"},
		file + "/a":         {fault.Conflict, "not a folder"},
		folder + "/loop":    {fault.Conflict, "loop"},
		folder + "/fifo":    {fault.Conflict, "device, pipe or socket"},
		"/dev/zero":         {fault.Conflict, "device, pipe or socket"},
		"/dev/tty":          {fault.Conflict, "device, pipe or socket"},
		"/proc/self/mem":    {fault.Conflict, "input/output error"},
	} {
		_, _, err := read(t, f, fields{"path": path})
		mustRefuse(t, err, want.code, want.text)
	}
}

func TestFilesOfTheKernelAreReadToTheirEnd(t *testing.T) {
	f := newFiles()
	head, got, err := read(t, f, fields{"path": "/proc/sys/kernel/ostype"})
	if err != nil || got != "Linux\n" || head.Length != nil || head.Entry.Size != 0 {
		t.Errorf("%+v, %q, %v", head, got, err)
	}
	if _, got, err = read(t, f, fields{"path": "/proc/self/status", "start": 1, "end": 3}); err != nil || got != "ame" {
		t.Errorf("%q, %v", got, err)
	}
	// Files of /sys have a size, which is not their length.
	head, got, err = read(t, f, fields{"path": "/sys/kernel/mm/transparent_hugepage/enabled"})
	if err != nil && !strings.Contains(err.Error(), "no such file") || err == nil && (head.Length != nil || !strings.HasSuffix(got, "\n")) {
		t.Errorf("%+v, %q, %v", head, got, err)
	}
	_, _, err = read(t, f, fields{"path": "/proc/self/status", "start": -1})
	mustRefuse(t, err, fault.Conflict, "size of the file is not known")
}

func TestAFileOfTheKernelHasAtMost64MiB(t *testing.T) {
	path := t.TempDir() + "/long"
	put(t, path, "")
	if err := os.Truncate(path, maxUnsized+1); err != nil {
		t.Fatal(err)
	}
	for length, isRefused := range map[int64]bool{maxUnsized: false, maxUnsized + 1: true} {
		if err := os.Truncate(path, length); err != nil {
			t.Fatal(err)
		}
		file, _, err := openFile(Path(path))
		if err != nil {
			t.Fatal(err)
		}
		err = sendUnsized(io.Discard, file, &readRequest{Path: Path(path)})
		_ = unix.Close(file)
		if (err != nil) != isRefused {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
}

// changing calls change before the first bytes are sent.
type changing struct {
	bytes.Buffer
	change func()
}

func (c *changing) Write(p []byte) (int, error) {
	if c.change != nil {
		c.change()
		c.change = nil
	}
	return c.Buffer.Write(p)
}

func TestAFileThatChangesItsLengthWhileItIsRead(t *testing.T) {
	f := newFiles()
	path := t.TempDir() + "/file"
	readWith := func(size int64) (int, error) {
		put(t, path, strings.Repeat("x", 2*bufferSize))
		s := &changing{change: func() { _ = os.Truncate(path, size) }}
		_, err := f.read(t.Context(), fields{"path": path}.json(t), newStream(nil, s).open)
		return s.Len(), err
	}
	if length, err := readWith(3 * bufferSize); err != nil || length != 2*bufferSize {
		t.Errorf("longer: %d bytes, %v", length, err)
	}
	length, err := readWith(bufferSize + 1)
	mustRefuse(t, err, fault.Conflict, "shorter")
	if length != bufferSize+1 {
		t.Errorf("shorter: %d bytes", length)
	}
}

func TestHeadsFitForTheLongestPath(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	path := folder
	for len(path) < 3900 {
		path += "/" + strings.Repeat("\xff", 190)
	}
	if _, err := write(t, f, fields{"path": encode(path + "/file"), "parents": true}, "x"); err != nil {
		t.Fatal(err)
	}
	head, got, err := read(t, f, fields{"path": encode(path + "/file")})
	if err != nil || got != "x" || head.Entry.Path != "" {
		t.Errorf("%+v, %q, %v", head, got, err)
	}
	if err := os.RemoveAll(folder); err != nil {
		must[nothing](t, f.remove, fields{"path": folder, "recursive": true})
	}
}
