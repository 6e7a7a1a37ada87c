// Tests how archives are unpacked: what is refused, what is replaced, and which errors end it.

package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

func unpack(t *testing.T, f *Files, path string, user any, content io.Reader) (unpacked, error) {
	t.Helper()
	answer, err := f.unpack(context.Background(), fields{"path": path, "user": user}.json(t), newStream(content, nil).open)
	if err != nil {
		return unpacked{}, err
	}
	if size := len(fields{"result": answer}.json(t)); size > 4<<10 {
		t.Errorf("a result of %d bytes", size)
	}
	return answer.(unpacked), nil
}

// archiveOf makes an archive. An entry without a type is a file with its name as content.
func archiveOf(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	content := new(bytes.Buffer)
	writer := tar.NewWriter(content)
	for _, header := range headers {
		if header.Typeflag == 0 {
			header.Typeflag = tar.TypeReg
		}
		if header.Typeflag == tar.TypeReg {
			header.Size = int64(len(header.Name))
		}
		if header.Mode == 0 {
			header.Mode = 0o644
		}
		if err := writer.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			_, _ = writer.Write([]byte(header.Name))
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return content
}

func TestEntriesThatWouldLeaveTheFolderAreRefusedOneByOne(t *testing.T) {
	base := t.TempDir()
	folder := base + "/folder"
	put(t, folder+"/inside/file", "")
	outside := put(t, base+"/outside/file", "kept")
	link(t, "../outside", folder+"/out")
	link(t, base+"/outside", folder+"/absolute")
	link(t, "inside", folder+"/in")
	if err := unix.Mkfifo(folder+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := map[string]tar.Header{
		"its name has ..":                               {Name: "a/../../outside/file"},
		"its name is absolute":                          {Name: "/etc/x"},
		"a link in its name leads out of the folder":    {Name: "out/file"},
		"a part of its name has more than 255 bytes":    {Name: strings.Repeat("n", 256)},
		"its name has more than 4096 bytes":             {Name: strings.Repeat("n/", 2050) + "n"},
		"it has no name":                                {Name: "./."},
		"it is a device":                                {Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		"it is a pipe":                                  {Name: "pipe", Typeflag: tar.TypeFifo},
		"it is no file, folder or link":                 {Name: "cont", Typeflag: tar.TypeCont},
		"the link is absolute":                          {Name: "l1", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		"the link leads out of the folder":              {Name: "a/l2", Typeflag: tar.TypeSymlink, Linkname: "../../x"},
		"the link has no target":                        {Name: "l3", Typeflag: tar.TypeSymlink},
		"what it is a link to is missing":               {Name: "l4", Typeflag: tar.TypeLink, Linkname: "missing"},
		"it is a link to something that is no file":     {Name: "l5", Typeflag: tar.TypeLink, Linkname: "inside"},
		"a folder is there":                             {Name: "inside"},
		"a device, pipe or socket is there":             {Name: "fifo"},
		"something that is no folder is there":          {Name: "inside/file", Typeflag: tar.TypeDir},
		"a part of the path is not a folder":            {Name: "inside/file/x"},
		"its owner is out of range":                     {Name: "owned", Uid: 1<<32 - 1},
		"the link is too long":                          {Name: "l6", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("l", 4096)},
		"its name is absolute ":                         {Name: "l7", Typeflag: tar.TypeLink, Linkname: base + "/outside/file"},
		"its name has .. ":                              {Name: "l8", Typeflag: tar.TypeLink, Linkname: "../outside/file"},
		"a link in its name leads out of the folder ":   {Name: "l9", Typeflag: tar.TypeLink, Linkname: "out/file"},
		"a link in its name leads out of the folder  ":  {Name: "absolute/file"},
		"a link in its name leads out of the folder   ": {Name: "out/new/folder/", Typeflag: tar.TypeDir},
	}
	f := newFiles()
	for reason, header := range wrong {
		result, err := unpack(t, f, folder, nil, archiveOf(t, tar.Header{Name: "before"}, header, tar.Header{Name: "in/after"}))
		if err != nil || result.Entries != 2 || result.RefusedCount != 1 || len(result.Refused) != 1 || result.Refused[0].Reason != strings.TrimSpace(reason) {
			t.Errorf("%s: %+v, %v", reason, result, err)
		}
	}
	expectContent(t, outside, "kept")
	expectContent(t, folder+"/before", "before")
	expectContent(t, folder+"/inside/after", "in/after")
	if got := namesIn(t, base) + "; " + namesIn(t, base+"/outside") + "; " + namesIn(t, folder); got != "folder outside; file; absolute before fifo in inside out" {
		t.Error(got)
	}
}

func TestALinkOfTheArchiveItselfLeadsNowhereElse(t *testing.T) {
	base := t.TempDir()
	folder := base + "/folder"
	put(t, folder+"/deep/er/file", "")
	outside := put(t, base+"/outside", "kept")
	result, err := unpack(t, newFiles(), folder, nil, archiveOf(t,
		tar.Header{Name: "deep/er/up", Typeflag: tar.TypeSymlink, Linkname: "../.."},
		tar.Header{Name: "hop", Typeflag: tar.TypeSymlink, Linkname: "deep/er/up/.."}, // its text stays inside
		tar.Header{Name: "hop/outside"},
		tar.Header{Name: "deep/er/up/beside"},
	))
	if err != nil || result.Entries != 3 || result.RefusedCount != 1 || result.Refused[0].Name != "hop/outside" {
		t.Errorf("%+v, %v", result, err)
	}
	expectContent(t, outside, "kept")
	expectContent(t, folder+"/beside", "deep/er/up/beside")
}

func TestUnpackReplacesFilesAndLinksButNotFolders(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	put(t, folder+"/file", "old")
	target := put(t, folder+"/target", "kept")
	link(t, "target", folder+"/link")
	if err := unix.Chmod(put(t, folder+"/sub/x", "")[:len(folder)+4], 0o1777); err != nil {
		t.Fatal(err)
	}
	result, err := unpack(t, f, folder, "7:8", archiveOf(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o700},
		tar.Header{Name: "file", Mode: 0o4755},
		tar.Header{Name: "link"},
		tar.Header{Name: "sub/", Typeflag: tar.TypeDir, Mode: 0o700},
		tar.Header{Name: "new/folder/file", Uid: 5},
		tar.Header{Name: "target2", Typeflag: tar.TypeLink, Linkname: "./target"},
		tar.Header{Name: "target2", Typeflag: tar.TypeLink, Linkname: "target"},
	))
	if err != nil || result.Entries != 6 || result.RefusedCount != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	expectContent(t, folder+"/file", "file")
	expectContent(t, folder+"/link", "link")
	expectContent(t, target, "kept")
	for name, want := range map[string]uint32{"": 0o755, "/file": 0o4755, "/link": 0o644, "/sub": 0o1777, "/new/folder": 0o755} {
		if got := must[Entry](t, f.entry, fields{"path": folder + name}); got.Mode != want || name == "/new/folder" && got.UID != 7 || name == "/file" && got.GID != 8 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := namesIn(t, folder); got != "file link new sub target target2" {
		t.Error(got)
	}
}

func TestTheListOfRefusedEntriesIsBounded(t *testing.T) {
	var headers []tar.Header
	for range 50 {
		headers = append(headers, tar.Header{Name: "/" + strings.Repeat("\xff", 300)}, tar.Header{Name: "/short"})
	}
	result, err := unpack(t, newFiles(), t.TempDir(), nil, archiveOf(t, headers...))
	if err != nil || result.Entries != 0 || result.RefusedCount != 100 || len(result.Refused) < 2 || len(result.Refused) > 20 {
		t.Errorf("%d of %d, %v", len(result.Refused), result.RefusedCount, err)
	}
}

func TestUnpacksThatEndWithAnError(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	file := put(t, folder+"/file", "old")
	whole := archiveOf(t, tar.Header{Name: "first"}, tar.Header{Name: "file"}).Bytes()
	for _, length := range []int{1, 511, 513, 512 + 4, 1024 + 511, 1536 + 3} {
		_, err := unpack(t, f, folder, nil, bytes.NewReader(whole[:length]))
		mustRefuse(t, err, fault.Validation, "no whole tar archive")
		_, err = unpack(t, f, folder, nil, io.MultiReader(bytes.NewReader(whole[:length]), &failing{errCut}))
		if !errors.Is(err, errCut) {
			t.Errorf("cut after %d bytes: %v", length, err)
		}
	}
	_, err := unpack(t, f, folder, nil, strings.NewReader(strings.Repeat("no archive", 100)))
	mustRefuse(t, err, fault.Validation, "no whole tar archive")
	expectContent(t, file, "old")
	if got := namesIn(t, folder); got != "file first" {
		t.Error(got)
	}
	_, err = unpack(t, f, file, nil, nil)
	mustRefuse(t, err, fault.Conflict, "not a folder")
	_, err = unpack(t, f, folder+"/missing", nil, nil)
	mustRefuse(t, err, fault.NotFound, "/missing")
	_, err = unpack(t, f, folder, "no-such-user", nil)
	mustRefuse(t, err, fault.Validation, "no-such-user")
}

func TestAnEmptyArchive(t *testing.T) {
	for _, content := range []string{"", string(make([]byte, 1024)), string(make([]byte, 10240))} {
		if result, err := unpack(t, newFiles(), t.TempDir(), nil, strings.NewReader(content)); err != nil || result.Entries != 0 {
			t.Errorf("%d bytes: %+v, %v", len(content), result, err)
		}
	}
}

func TestUnpackOnADiskThatIsFull(t *testing.T) {
	folder := mountSmall(t, "256k")
	put(t, folder+"/large", "old")
	content := new(bytes.Buffer)
	writer := tar.NewWriter(content)
	_ = writer.WriteHeader(&tar.Header{Name: "large", Typeflag: tar.TypeReg, Size: 1 << 20, Mode: 0o644})
	_, _ = writer.Write(make([]byte, 1<<20))
	_ = writer.Close()
	_, err := unpack(t, newFiles(), folder, nil, content)
	mustRefuse(t, err, fault.DiskFull, folder)
	expectContent(t, folder+"/large", "old")
	if got := namesIn(t, folder); got != "large" {
		t.Error(got)
	}
}

func TestUnpackIntoAFolderOfTheKernelRefusesEachEntry(t *testing.T) {
	result, err := unpack(t, newFiles(), "/proc", nil, archiveOf(t, tar.Header{Name: "x"}, tar.Header{Name: "y"}))
	if err != nil || result.Entries != 0 || result.RefusedCount != 2 {
		t.Errorf("%+v, %v", result, err)
	}
}

// inMemory returns a folder on a file system in memory, because each unpacking ends with a wait for the disk.
func inMemory(t *testing.T) string {
	folder, err := os.MkdirTemp("/dev/shm", "files-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// The fuzzer makes the header of an entry. Nothing outside of the folder may change, and each entry is either unpacked or
// refused.
func FuzzMember(f *testing.F) {
	f.Add("a/b", "", byte(tar.TypeReg))
	f.Add("in/../../x", "", byte(tar.TypeReg))
	f.Add("in/x", "/etc", byte(tar.TypeSymlink))
	f.Add("in/x", "../out/file", byte(tar.TypeLink))
	f.Add("out/x", "..", byte(tar.TypeDir))
	f.Fuzz(func(t *testing.T, name, target string, kind byte) {
		base := inMemory(t)
		outside := put(t, base+"/outside/file", "kept")
		put(t, base+"/folder/in/file", "")
		link(t, "../outside", base+"/folder/out")
		content := new(bytes.Buffer)
		writer := tar.NewWriter(content)
		for _, name := range []string{name, name + "/below"} {
			header := &tar.Header{Name: name, Linkname: target, Typeflag: kind, Mode: 0o644}
			if writer.WriteHeader(header) != nil {
				return
			}
		}
		result, err := unpack(t, newFiles(), base+"/folder", nil, content)
		if err != nil && err.(*fault.Error).Code != fault.Validation || err == nil && len(result.Refused) > result.RefusedCount {
			t.Errorf("%+v, %v", result, err)
		}
		expectContent(t, outside, "kept")
		if got := namesIn(t, base) + "; " + namesIn(t, base+"/outside"); got != "folder outside; file" {
			t.Error(got)
		}
	})
}

// The fuzzer makes the bytes of an archive.
func FuzzUnpack(f *testing.F) {
	f.Add(archiveOf(f, tar.Header{Name: "a"}, tar.Header{Name: "../x"}, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "a"}).Bytes())
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, content []byte) {
		base := inMemory(t)
		if err := os.Mkdir(base+"/folder", 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := unpack(t, newFiles(), base+"/folder", nil, bytes.NewReader(content))
		known := new(fault.Error)
		if err != nil && (!errors.As(err, &known) || known.Code != fault.Validation) {
			t.Error(err)
		}
		if got := namesIn(t, base); got != "folder" {
			t.Error(got)
		}
	})
}
