// Tests how files are written: whole or not at all, whatever cuts a write short.

package files

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/freeze"
)

func TestAFileIsWrittenAndRead(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	content := strings.Repeat("0123456789abcdef", 20_000) + "end"
	path := folder + "/new/odd\n\xff"
	entry, err := write(t, f, fields{"path": encode(path), "parents": true, "mode": nil, "user": nil}, content)
	if err != nil || entry.Mode != 0o644 || entry.Size != int64(len(content)) || entry.Path != Path(path) || entry.Type != "file" {
		t.Fatalf("%+v, %v", entry, err)
	}
	expectContent(t, path, content)
	head, got, err := read(t, f, fields{"path": encode(path)})
	if err != nil || got != content || *head.Length != int64(len(content)) || head.Start != 0 || head.Entry != entry {
		t.Errorf("%+v, %d bytes, %v", head, len(got), err)
	}
	if got := namesIn(t, folder+"/new"); got != "odd\n\xff" {
		t.Errorf("%q", got)
	}
}

func TestAnEmptyFileIsWrittenAndRead(t *testing.T) {
	f := newFiles()
	path := t.TempDir() + "/empty"
	if _, err := write(t, f, fields{"path": path}, ""); err != nil {
		t.Fatal(err)
	}
	head, got, err := read(t, f, fields{"path": path})
	if err != nil || got != "" || head.Length == nil || *head.Length != 0 {
		t.Errorf("%+v, %q, %v", head, got, err)
	}
}

func TestAFileThatIsReplacedKeepsItsOwnerAndMode(t *testing.T) {
	f := newFiles()
	f.root = t.TempDir()
	put(t, f.root+"/etc/passwd", "ann:x:1000:1001:::\n")
	path := put(t, t.TempDir()+"/file", "old")
	if err := errors.Join(os.Chown(path, 7, 8), unix.Chmod(path, 0o4710)); err != nil {
		t.Skip(err)
	}
	expect := func(params fields, uid, gid, mode uint32) {
		t.Helper()
		params["path"] = path
		if got, err := write(t, f, params, "new"); err != nil || got.UID != uid || got.GID != gid || got.Mode != mode {
			t.Errorf("%v: %+v, %v", params, got, err)
		}
	}
	expect(fields{}, 7, 8, 0o4710)
	expect(fields{"mode": 0o600}, 7, 8, 0o600)
	expect(fields{"user": "ann"}, 1000, 1001, 0o600)
	expect(fields{"user": "7:9", "mode": 0o6755}, 7, 9, 0o6755)
	expectContent(t, path, "new")
}

func TestAWriteThroughALinkReplacesItsTarget(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	target := put(t, folder+"/far/file", "old")
	link(t, "far/file", folder+"/one")
	link(t, folder+"/one", folder+"/two")
	link(t, "far/../far/new", folder+"/dangling")
	for _, name := range []string{"/two", "/dangling"} {
		if _, err := write(t, f, fields{"path": folder + name}, "new"); err != nil {
			t.Error(err)
		}
	}
	expectContent(t, target, "new")
	expectContent(t, folder+"/far/new", "new")
	if got := namesIn(t, folder) + "; " + namesIn(t, folder+"/far"); got != "dangling far one two; file new" {
		t.Error(got)
	}
}

func TestWritesThatAreRefused(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	file := put(t, folder+"/file", "kept")
	link(t, "loop", folder+"/loop")
	link(t, "file", folder+"/link")
	link(t, "/", folder+"/root")
	link(t, "../", folder+"/up")
	if err := unix.Mkfifo(folder+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	before := namesIn(t, folder)
	for _, wrong := range []struct {
		params fields
		code   fault.Code
		text   string
	}{
		{fields{"path": folder}, fault.Conflict, "it is a folder"},
		{fields{"path": folder + "/up"}, fault.Conflict, "it is a folder"},
		{fields{"path": folder + "/root"}, fault.Conflict, "it is a folder"},
		{fields{"path": folder + "/fifo"}, fault.Conflict, "device, pipe or socket"},
		{fields{"path": "/dev/null"}, fault.Conflict, "device, pipe or socket"},
		{fields{"path": "/proc/sys/kernel/hostname"}, fault.Conflict, "the kernel makes"},
		{fields{"path": "/sys/new"}, fault.Conflict, "the kernel makes"},
		{fields{"path": "/"}, fault.Conflict, "root folder"},
		{fields{"path": folder + "/.."}, fault.Validation, ".."},
		{fields{"path": folder + "/loop"}, fault.Conflict, "loop"},
		{fields{"path": folder + "/missing/a"}, fault.NotFound, "/missing/a"},
		{fields{"path": file + "/a", "parents": true}, fault.Conflict, "not a folder"},
		{fields{"path": file, "exclusive": true}, fault.Conflict, "exists"},
		{fields{"path": folder + "/link", "exclusive": true}, fault.Conflict, "exists"},
		{fields{"path": folder + "/loop", "exclusive": true}, fault.Conflict, "exists"},
		{fields{"path": file, "mode": 0o10000}, fault.Validation, "mode"},
		{fields{"path": file, "user": "no-such-user"}, fault.Validation, "no-such-user"},
	} {
		s := newStream(strings.NewReader("new"), io.Discard)
		_, err := f.write(t.Context(), wrong.params.json(t), s.open)
		mustRefuse(t, err, wrong.code, wrong.text)
		if s.head != nil {
			t.Errorf("%v: refused only after the content", wrong.params)
		}
	}
	expectContent(t, file, "kept")
	if got := namesIn(t, folder); got != before {
		t.Errorf("%s, before %s", got, before)
	}
}

func TestOfTwoExclusiveWritesOneSucceeds(t *testing.T) {
	f := newFiles()
	path := t.TempDir() + "/file"
	first, firstIn := newUpload(t, f, fields{"path": path, "exclusive": true})
	second, secondIn := newUpload(t, f, fields{"path": path, "exclusive": true})
	_, _ = firstIn.Write([]byte("first"))
	_, _ = secondIn.Write([]byte("second"))
	_ = firstIn.Close()
	if err := <-first; err != nil {
		t.Error(err)
	}
	_ = secondIn.Close()
	mustRefuse(t, <-second, fault.Conflict, "exists")
	expectContent(t, path, "first")
}

func TestAWriteOfAnotherVersionIsRefused(t *testing.T) {
	f := newFiles()
	path := put(t, t.TempDir()+"/file", "first")
	version := func() string {
		head, _, err := read(t, f, fields{"path": path})
		if err != nil {
			t.Fatal(err)
		}
		return head.Etag
	}
	old := version()
	if _, err := write(t, f, fields{"path": path, "if_etag": old}, "second"); err != nil {
		t.Fatal(err)
	}
	stream := newStream(strings.NewReader("third"), io.Discard)
	_, err := f.write(t.Context(), fields{"path": path, "if_etag": old}.json(t), stream.open)
	mustRefuse(t, err, fault.Conflict, "the file has changed")
	if stream.head != nil {
		t.Error("refused only after the content")
	}

	// The file changes after the upload has begun.
	ended, in := newUpload(t, f, fields{"path": path, "if_etag": version()})
	put(t, path, "changed meanwhile")
	_ = in.Close()
	mustRefuse(t, <-ended, fault.Conflict, "the file has changed")
	expectContent(t, path, "changed meanwhile")

	etag := version()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = write(t, f, fields{"path": path, "if_etag": etag}, "x")
	mustRefuse(t, err, fault.Conflict, "does not exist any more")
}

func TestOfWritesThatReplaceTheSameVersionAtTheSameTimeOneSucceeds(t *testing.T) {
	f := newFiles()
	path := put(t, t.TempDir()+"/file", "first")
	for round := range 150 {
		head, _, err := read(t, f, fields{"path": path})
		if err != nil {
			t.Fatal(err)
		}
		var uploads []<-chan error
		var contents []*io.PipeWriter
		for range 4 {
			ended, in := newUpload(t, f, fields{"path": path, "if_etag": head.Etag})
			uploads, contents = append(uploads, ended), append(contents, in)
		}
		for _, in := range contents {
			_ = in.Close()
		}
		succeeded := 0
		for _, ended := range uploads {
			if err := <-ended; err == nil {
				succeeded++
			} else {
				mustRefuse(t, err, fault.Conflict, "the file has changed")
			}
		}
		if succeeded != 1 {
			t.Fatalf("round %d: %d writes succeeded", round, succeeded)
		}
	}
}

// newUpload begins files.write. The returned writer carries the content, and the channel gets the error of the stream.
func newUpload(t *testing.T, f *Files, params fields) (<-chan error, *io.PipeWriter) {
	t.Helper()
	out, in := io.Pipe()
	s := newStream(out, io.Discard)
	ended := make(chan error, 1)
	go func() {
		_, err := f.write(context.Background(), params.json(t), s.open)
		ended <- err
	}()
	<-s.opened
	return ended, in
}

var errCut = errors.New("cut")

func TestAnUploadCutAtAnyByteLeavesTheOldFile(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	path := put(t, folder+"/file", "old")
	content := strings.Repeat("x", 3*bufferSize)
	for _, length := range []int{0, 1, 2, 3, 511, bufferSize - 1, bufferSize, bufferSize + 1, 3 * bufferSize} {
		from := io.MultiReader(strings.NewReader(content[:length]), &failing{errCut})
		_, err := f.write(context.Background(), fields{"path": path}.json(t), newStream(from, io.Discard).open)
		if !errors.Is(err, errCut) {
			t.Errorf("after %d bytes: %v", length, err)
		}
		expectContent(t, path, "old")
		if got := namesIn(t, folder); got != "file" {
			t.Errorf("after %d bytes: %s", length, got)
		}
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestADiskThatIsFullLeavesTheOldFile(t *testing.T) {
	f := newFiles()
	folder := mountSmall(t, "256k")
	path := put(t, folder+"/file", "old")
	_, err := write(t, f, fields{"path": path}, strings.Repeat("x", 1<<20))
	mustRefuse(t, err, fault.DiskFull, path)
	expectContent(t, path, "old")
	if got := namesIn(t, folder); got != "file" {
		t.Error(got)
	}
	if _, err := write(t, f, fields{"path": path}, strings.Repeat("x", 128<<10)); err != nil {
		t.Error("the space is free again: ", err)
	}
}

// A file system that cannot make files without a name: overlayfs could not before Linux 6.1, and some others cannot.
func TestAFileSystemWithoutNamelessFiles(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	path := put(t, folder+"/file", "old")
	at, err := openPlace(Path(path))
	if err != nil {
		t.Fatal(err)
	}
	defer at.close()
	begin := func() *temporary {
		file := &temporary{files: f, folder: at.folder, file: -1, name: f.leftovers.newName()}
		if file.file, err = file.open(file.name, unix.O_CREAT|unix.O_EXCL); err != nil {
			t.Fatal(err)
		}
		return file
	}
	file := begin()
	if got := namesIn(t, folder); got != file.name+" file" || !isTemporaryName(file.name) {
		t.Error(got)
	}
	if err := file.place(t.Context(), "file", true, unchecked); err != unix.EEXIST {
		t.Error(err)
	}
	file.discard()
	expectContent(t, path, "old")
	file = begin()
	if err := errors.Join(file.write(t.Context(), []byte("new")), file.place(t.Context(), "file", false, unchecked)); err != nil {
		t.Error(err)
	}
	file.discard()
	expectContent(t, path, "new")
	if got := namesIn(t, folder); got != "file" || len(f.leftovers.inUse) != 0 {
		t.Error(got, f.leftovers.inUse)
	}
}

func TestLeftoversOfAnEarlierBootAreRemoved(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	inUse := f.leftovers.newName()
	for _, name := range []string{".sandbar-0123456789abcdef.tmp", ".sandbar-0123456789abcde.tmp", ".sandbar-x.tmp", inUse} {
		put(t, folder+"/"+name, "")
	}
	if _, err := write(t, f, fields{"path": folder + "/file"}, ""); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, folder); strings.Contains(got, "abcdef.tmp") || !strings.Contains(got, inUse) || strings.Count(got, " ") != 3 {
		t.Error(got)
	}
}

func TestAFreezeDoesNotWaitForAnUploadAndHoldsItsWrites(t *testing.T) {
	gate := new(freeze.Gate)
	f := New(gate)
	path := put(t, t.TempDir()+"/file", "old")
	ended, in := newUpload(t, f, fields{"path": path})
	if _, err := in.Write([]byte("first ")); err != nil {
		t.Fatal(err)
	}
	freezer := freeze.Pretended(gate)
	if err := freezer.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = in.Write([]byte("second"))
		_ = in.Close()
	}()
	for name, call := range map[string]func() error{
		"mkdir":  func() error { _, err := f.mkdir(overContext(t), fields{"path": path + "-1"}.json(t)); return err },
		"remove": func() error { _, err := f.remove(overContext(t), fields{"path": path}.json(t)); return err },
		"move": func() error {
			_, err := f.move(overContext(t), fields{"from": path, "to": path + "-2"}.json(t))
			return err
		},
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s while frozen: %v", name, err)
		}
	}
	expectContent(t, path, "old")
	if err := freezer.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	expectContent(t, path, "first second")
}

// overContext returns a context that has ended.
func overContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestAPowerOffDiscardsUploads(t *testing.T) {
	f := newFiles()
	folder := mountSmall(t, "1m")
	path := put(t, folder+"/file", "old")
	ended, in := newUpload(t, f, fields{"path": path})
	if _, err := in.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != unix.EBUSY {
		t.Errorf("the file system is not busy: %v", err)
	}
	f.Close()
	if err := unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Errorf("the file system is still busy: %v", err)
	}
	_, _ = in.Write([]byte("more"))
	mustRefuse(t, <-ended, fault.Conflict, "powering off")
	_, err := write(t, f, fields{"path": t.TempDir() + "/late"}, "")
	mustRefuse(t, err, fault.Conflict, "powering off")
	expectContent(t, path, "old")
}
