// Tests how a folder becomes an archive, and that unpacking it gives the same folder.

package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

func archive(t *testing.T, f *Files, path string) ([]byte, error) {
	t.Helper()
	content := new(bytes.Buffer)
	_, err := f.archive(context.Background(), fields{"path": encode(path)}.json(t), newStream(nil, content).open)
	return content.Bytes(), err
}

// describe returns a line for each entry of an archive, in order.
func describe(t *testing.T, archive []byte) string {
	t.Helper()
	var lines []string
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if err == io.EOF {
			sort.Strings(lines)
			return strings.Join(lines, "\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%q %c %o %d:%d %q %d %.10s", header.Name, header.Typeflag, header.Mode, header.Uid, header.Gid, header.Linkname, header.ModTime.UnixNano(), content))
	}
}

// makeTree makes a folder with one of each.
func makeTree(t *testing.T) string {
	t.Helper()
	folder := t.TempDir() + "/tree"
	put(t, folder+"/sub/odd\n\xff", "odd")
	put(t, folder+"/empty", "")
	put(t, folder+"/large", strings.Repeat("large", bufferSize))
	put(t, folder+"/sub/"+strings.Repeat("n", 250)+"/"+strings.Repeat("m", 250), "long name")
	link(t, "../empty", folder+"/sub/link")
	link(t, "nowhere", folder+"/dangling")
	err := errors.Join(
		os.Link(folder+"/large", folder+"/sub/large2"),
		unix.Mkfifo(folder+"/fifo", 0o600),
		os.Chown(folder+"/empty", 1000, 1001),
		unix.Chmod(folder+"/empty", 0o4755),
		unix.Chmod(folder+"/sub", 0o1777),
	)
	if err != nil {
		t.Skip(err)
	}
	socket, err := net.Listen("unix", folder+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	modified := time.Unix(1700000000, 123456789)
	for _, name := range []string{"/sub/odd\n\xff", "/large", "/empty", "/sub"} {
		if err := os.Chtimes(folder+name, modified, modified); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestAnArchiveIsUnpackedAsItWas(t *testing.T) {
	f := newFiles()
	folder := makeTree(t)
	content, err := archive(t, f, folder)
	if err != nil {
		t.Fatal(err)
	}
	names := describe(t, content)
	if strings.Contains(names, "socket") || strings.Contains(names, "fifo") || strings.Count(names, "\n") != 8 || strings.Count(names, " 1 ") != 1 {
		t.Error(names)
	}
	copied := t.TempDir()
	result, err := unpack(t, f, copied, nil, bytes.NewReader(content))
	if err != nil || result.Entries != 9 || result.RefusedCount != 0 || len(result.Refused) != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	again, err := archive(t, f, copied)
	if err != nil || describe(t, again) != names {
		t.Errorf("%v\n%s\n\nbecame\n\n%s", err, names, describe(t, again))
	}
	first, second := must[Entry](t, f.entry, fields{"path": copied + "/large"}), must[Entry](t, f.entry, fields{"path": copied + "/sub/large2"})
	if first.Inode != second.Inode {
		t.Error("the hard link became a file of its own")
	}
	// Once more over what is there.
	if result, err = unpack(t, f, copied, nil, bytes.NewReader(content)); err != nil || result.Entries != 9 {
		t.Errorf("%+v, %v", result, err)
	}
	expectContent(t, copied+"/sub/large2", strings.Repeat("large", bufferSize))
	if got := namesIn(t, copied); got != "dangling empty large sub" {
		t.Error(got)
	}
}

func TestAnArchiveOfAFileHasItsName(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	put(t, folder+"/file", "content")
	link(t, "file", folder+"/link")
	for _, name := range []string{"file", "link"} {
		content, err := archive(t, f, folder+"/"+name)
		if got := describe(t, content); err != nil || !strings.HasPrefix(got, `"`+name+`" 0 644 0:0 ""`) || !strings.HasSuffix(got, " content") {
			t.Errorf("%s, %v", got, err)
		}
	}
}

func TestArchivesThatAreRefused(t *testing.T) {
	for path, want := range map[string]fault.Code{
		"/proc": fault.Conflict, "/proc/self/status": fault.Conflict, "/sys/kernel": fault.Conflict, "/dev/null": fault.Conflict,
		t.TempDir() + "/missing": fault.NotFound,
	} {
		_, err := archive(t, newFiles(), path)
		mustRefuse(t, err, want, path)
	}
}

func TestAnArchiveHasNoFilesOfTheKernel(t *testing.T) {
	folder := t.TempDir()
	put(t, folder+"/file", "")
	if err := errors.Join(os.Mkdir(folder+"/proc", 0o755), unix.Mount("proc", folder+"/proc", "proc", 0, "")); err != nil {
		t.Skip("mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder+"/proc", unix.MNT_DETACH) })
	content, err := archive(t, newFiles(), folder)
	if got := describe(t, content); err != nil || strings.Count(got, "\n") != 1 || !strings.Contains(got, `"proc/" 5`) {
		t.Errorf("%.1000s, %v", got, err)
	}
}

func TestAFileThatChangesItsLengthWhileItIsArchived(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	archiveWith := func(size int64) ([]byte, error) {
		put(t, folder+"/file", strings.Repeat("x", 4*bufferSize))
		out := &changing{change: func() { _ = os.Truncate(folder+"/file", size) }}
		_, err := f.archive(t.Context(), fields{"path": folder}.json(t), newStream(nil, out).open)
		return out.Bytes(), err
	}
	content, err := archiveWith(8 * bufferSize)
	if err != nil || strings.Count(describe(t, content), "xxxxxxxxxx") != 1 {
		t.Errorf("longer: %v", err)
	}
	_, err = archiveWith(2 * bufferSize)
	mustRefuse(t, err, fault.Conflict, "shorter")
}

func TestAnArchiveEndsWhenTheHostTakesNoMore(t *testing.T) {
	_, err := newFiles().archive(t.Context(), fields{"path": makeTree(t)}.json(t), newStream(nil, failingWriter{}).open)
	if !errors.Is(err, errCut) {
		t.Error(err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errCut }
