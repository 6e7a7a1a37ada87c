package files

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

func TestRemoveOfFilesLinksAndEmptyFolders(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	put(t, folder+"/kept/file", "")
	if err := unix.Mkfifo(folder+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder+"/empty", 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, "kept", folder+"/link")
	link(t, "loop", folder+"/loop")
	put(t, folder+"/odd\n\xff", "")
	for _, name := range []string{"/fifo", "/empty", "/link", "/loop", "/odd%0a%ff"} {
		must[nothing](t, f.remove, fields{"path": folder + name})
	}
	must[nothing](t, f.remove, fields{"path": folder + "/kept/file/"})
	if got := namesIn(t, folder); got != "kept" {
		t.Error(got)
	}
}

func TestRemovesThatAreRefused(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	put(t, folder+"/full/file", "")
	for path, want := range map[string]struct {
		code fault.Code
		text string
	}{
		folder + "/full":      {fault.Conflict, "not empty"},
		folder + "/missing":   {fault.NotFound, "/missing"},
		folder + "/missing/a": {fault.NotFound, "/missing/a"},
		folder + "/full/..":   {fault.Validation, ".."},
		"/":                   {fault.Conflict, "root folder"},
		"/proc/self/status":   {fault.Conflict, "not allow"},
	} {
		_, err := ask[nothing](t, f.remove, fields{"path": path})
		mustRefuse(t, err, want.code, want.text)
	}
	expectContent(t, folder+"/full/file", "")
}

func TestRemoveOfAFolderWithItsContents(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	for _, name := range []string{"a/b/c/d", "a/b/e", "a/odd\n\xff"} {
		put(t, folder+"/gone/"+name, "")
	}
	outside := put(t, folder+"/outside/file", "kept")
	link(t, folder+"/outside", folder+"/gone/a/link")
	link(t, "..", folder+"/gone/a/up")
	for i := range 3000 {
		put(t, folder+"/gone/many/"+strings.Repeat("n", 60)+string(rune('A'+i%26))+strings.Repeat("m", i/26), "")
	}
	must[nothing](t, f.remove, fields{"path": folder + "/gone", "recursive": true})
	if got := namesIn(t, folder); got != "outside" {
		t.Error(got)
	}
	expectContent(t, outside, "kept")
}

func TestRemoveOfALinkToAFolderKeepsTheFolder(t *testing.T) {
	folder := t.TempDir()
	kept := put(t, folder+"/kept/file", "")
	link(t, "kept", folder+"/link")
	must[nothing](t, newFiles().remove, fields{"path": folder + "/link", "recursive": true})
	expectContent(t, kept, "")
}

func TestRemoveNeverEmptiesWhatIsMounted(t *testing.T) {
	folder := t.TempDir()
	for i := range 50 {
		put(t, folder+"/a/file"+strconv.Itoa(i), "")
	}
	before := namesIn(t, folder+"/a")
	point := folder + "/a/mounted here"
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, ""); err != nil {
		t.Skip("mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	put(t, point+"/file", "kept")
	f := newFiles()
	for _, path := range []string{folder, folder + "/a", point} {
		_, err := ask[nothing](t, f.remove, fields{"path": path, "recursive": true})
		mustRefuse(t, err, fault.Conflict, "mounted there; unmount it first: "+point)
	}
	if got := namesIn(t, folder+"/a"); got != before+" mounted here" {
		t.Errorf("something was removed: %s", got)
	}
	// Also if it is mounted after the first look.
	at, err := openPlace(Path(folder + "/a"))
	if err != nil {
		t.Fatal(err)
	}
	defer at.close()
	mustRefuse(t, f.removeTree(t.Context(), at, Path(folder+"/a"), 0), fault.Conflict, point)
	expectContent(t, point+"/file", "kept")
}

func TestAFolderThatALinkReplacedIsNotFollowed(t *testing.T) {
	folder := t.TempDir()
	kept := put(t, folder+"/outside/file", "kept")
	link(t, "outside", folder+"/was-a-folder")
	at, err := openPlace(Path(folder + "/was-a-folder"))
	if err != nil {
		t.Fatal(err)
	}
	defer at.close()
	if err := newFiles().removeTree(t.Context(), at, "/x", 0); err != nil {
		t.Error(err)
	}
	expectContent(t, kept, "kept")
	if got := namesIn(t, folder); got != "outside" {
		t.Error(got)
	}
}

type made struct {
	Entry   Entry `json:"entry"`
	Created bool  `json:"created"`
}

func TestMkdirMakesFolders(t *testing.T) {
	f := newFiles()
	f.root = t.TempDir()
	put(t, f.root+"/etc/passwd", "ann:x:1000:1001:::\n")
	folder := t.TempDir()
	got := must[made](t, f.mkdir, fields{"path": folder + "/a/b/c", "mode": 0o1777, "user": "ann", "parents": true})
	if !got.Created || got.Entry.Mode != 0o1777 || got.Entry.User != "ann" || got.Entry.GID != 1001 {
		t.Errorf("%+v", got)
	}
	if parent := must[Entry](t, f.entry, fields{"path": folder + "/a"}); parent.Mode != 0o755 || parent.UID != 1000 {
		t.Errorf("%+v", parent)
	}
	if got := must[made](t, f.mkdir, fields{"path": folder + "/plain", "mode": nil, "user": nil}); got.Entry.Mode != 0o755 || got.Entry.UID != 0 {
		t.Errorf("%+v", got)
	}
	link(t, "a", folder+"/link")
	for _, path := range []string{folder + "/a/b/c", folder + "/link", folder + "/a/..", "/"} {
		if got := must[made](t, f.mkdir, fields{"path": path, "parents": true, "mode": 0o700}); got.Created {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if got := must[made](t, f.mkdir, fields{"path": folder + "/link/new", "parents": true}); !got.Created {
		t.Errorf("%+v", got)
	}
	if got := namesIn(t, folder+"/a"); got != "b new" {
		t.Error(got)
	}
}

func TestMkdirsThatAreRefused(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	file := put(t, folder+"/file", "")
	link(t, "nowhere", folder+"/dangling")
	for _, wrong := range []struct {
		params fields
		code   fault.Code
		text   string
	}{
		{fields{"path": file, "parents": true}, fault.Conflict, "exists"},
		{fields{"path": file + "/a", "parents": true}, fault.Conflict, "not a folder"},
		{fields{"path": folder + "/dangling", "parents": true}, fault.Conflict, "exists"},
		{fields{"path": folder + "/dangling/a", "parents": true}, fault.Conflict, "exists"},
		{fields{"path": folder + "/x/y", "parents": false}, fault.NotFound, "/x/y"},
		{fields{"path": folder + "/x", "mode": 0o10000}, fault.Validation, "mode"},
		{fields{"path": folder + "/x", "user": "no-such-user"}, fault.Validation, "no-such-user"},
	} {
		_, err := ask[made](t, f.mkdir, wrong.params)
		mustRefuse(t, err, wrong.code, wrong.text)
	}
	if got := namesIn(t, folder); got != "dangling file" {
		t.Error(got)
	}
}

func TestMove(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	put(t, folder+"/a", "new")
	put(t, folder+"/b", "old")
	put(t, folder+"/tree/file", "")
	if err := os.Mkdir(folder+"/empty", 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, "nowhere", folder+"/link")
	_, err := ask[Entry](t, f.move, fields{"from": folder + "/a", "to": folder + "/b"})
	mustRefuse(t, err, fault.Conflict, "exists already: "+folder+"/b")
	if got := must[Entry](t, f.move, fields{"from": folder + "/a", "to": folder + "/b", "overwrite": true}); got.Path != Path(folder+"/b") || got.Size != 3 {
		t.Errorf("%+v", got)
	}
	expectContent(t, folder+"/b", "new")
	must[Entry](t, f.move, fields{"from": folder + "/link", "to": folder + "/link2"})
	must[Entry](t, f.move, fields{"from": folder + "/tree", "to": folder + "/empty", "overwrite": true})
	if got := namesIn(t, folder); got != "b empty link2" {
		t.Error(got)
	}
}

func TestMovesThatAreRefused(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	file := put(t, folder+"/file", "kept")
	put(t, folder+"/tree/file", "")
	put(t, folder+"/tree2/file", "")
	other := mountSmall(t, "1m")
	for _, wrong := range []struct {
		from, to string
		code     fault.Code
		text     string
	}{
		{"/missing", "/x", fault.NotFound, "/missing"},
		{"/file", "/missing/x", fault.NotFound, "/missing/x"},
		{"/file", "/tree", fault.Conflict, "folder"},
		{"/tree", "/file", fault.Conflict, "not a folder"},
		{"/tree", "/tree2", fault.Conflict, "not empty"},
		{"/tree", "/tree/below", fault.Conflict, "into itself"},
		{"/tree/..", "/x", fault.Validation, ".."},
		{"/file", "/x/..", fault.Validation, ".."},
	} {
		_, err := ask[Entry](t, f.move, fields{"from": folder + wrong.from, "to": folder + wrong.to, "overwrite": true})
		mustRefuse(t, err, wrong.code, wrong.text)
	}
	_, err := ask[Entry](t, f.move, fields{"from": file, "to": "/"})
	mustRefuse(t, err, fault.Conflict, "root folder")
	_, err = ask[Entry](t, f.move, fields{"from": file, "to": other + "/x"})
	mustRefuse(t, err, fault.Conflict, "different file systems")
	expectContent(t, file, "kept")
}
