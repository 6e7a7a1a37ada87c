package files

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

func TestEntryDescribesAFile(t *testing.T) {
	f := newFiles()
	f.root = t.TempDir()
	put(t, f.root+"/etc/passwd", "ann:x:1000:1000:::\n")
	put(t, f.root+"/etc/group", "staff:x:50:\n")
	path := put(t, filepath.Join(t.TempDir(), "a b"), "hello")
	modified := time.Unix(1700000000, 123456789)
	if err := os.Chtimes(path, modified, modified); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 1000, 50); err != nil {
		t.Skip(err)
	}
	if err := unix.Chmod(path, 0o4751); err != nil {
		t.Fatal(err)
	}
	got := must[Entry](t, f.entry, fields{"path": path})
	if got.Inode == 0 || got.Device == 0 {
		t.Errorf("inode %d, device %d", got.Inode, got.Device)
	}
	got.Inode, got.Device = 0, 0
	want := Entry{Path: Path(path), Type: "file", Size: 5, Mode: 0o4751, UID: 1000, GID: 50, User: "ann", Group: "staff",
		MtimeNs: strconv.FormatInt(modified.UnixNano(), 10)}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestEntryDoesNotFollowALink(t *testing.T) {
	folder := t.TempDir()
	got := must[Entry](t, newFiles().entry, fields{"path": encode(link(t, "no\xffwhere\n", folder+"/l\xff"))})
	if got.Type != "symlink" || got.Target != "no\xffwhere\n" || got.Path != Path(folder+"/l\xff") {
		t.Errorf("%+v", got)
	}
}

func TestEntryOfOtherNodes(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	if err := unix.Mkfifo(folder+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/": "directory", "/dev/null": "other", folder + "/fifo": "other", "/proc/self/status": "file", "/proc/self/exe": "symlink",
		folder + "/..": "directory",
	} {
		if got := must[Entry](t, f.entry, fields{"path": path}); got.Type != want {
			t.Errorf("%s: %+v, want %s", path, got, want)
		}
	}
}

func TestEntryOfWhatIsNotThere(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	file := put(t, folder+"/file", "")
	link(t, "loop", folder+"/loop")
	for path, want := range map[string]struct {
		code fault.Code
		text string
	}{
		folder + "/missing":   {fault.NotFound, folder + "/missing"},
		folder + "/missing/a": {fault.NotFound, "/missing/a"},
		file + "/a":           {fault.Conflict, "not a folder"},
		folder + "/loop/a":    {fault.Conflict, "loop"},
	} {
		_, err := ask[Entry](t, f.entry, fields{"path": path})
		mustRefuse(t, err, want.code, want.text)
	}
	if got := must[Entry](t, f.entry, fields{"path": folder + "/loop"}); got.Type != "symlink" {
		t.Errorf("the link itself: %+v", got)
	}
}

func TestADotDotFollowsTheKernel(t *testing.T) {
	folder := t.TempDir()
	put(t, folder+"/far/inner/file", "")
	put(t, folder+"/far/beside", "")
	link(t, "far/inner", folder+"/near")
	if _, err := ask[Entry](t, newFiles().entry, fields{"path": folder + "/near/../beside"}); err != nil {
		t.Error(err)
	}
}

func TestListIsInTheOrderOfTheTree(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"b/2", "b/1/x", "b-c", "a", "b.d/y", "\xff", "line\nbreak"} {
		put(t, filepath.Join(folder, name), "")
	}
	link(t, "b", folder+"/c")
	link(t, "far", folder+"/self")
	f := newFiles()
	expect := func(depth int, want string) {
		t.Helper()
		for limit := 1; limit < 15; limit++ {
			if got := listAll(t, f, folder, depth, limit); got != want {
				t.Errorf("depth %d, limit %d: %q, want %q", depth, limit, got, want)
			}
		}
	}
	expect(1, "a b b-c b.d c line\nbreak self \xff")
	expect(2, "a b b/1 b/2 b-c b.d b.d/y c line\nbreak self \xff")
	expect(64, "a b b/1 b/1/x b/2 b-c b.d b.d/y c line\nbreak self \xff")
	if got := listAll(t, f, folder+"/c", 1, 10); got != "1 2" {
		t.Errorf("a link to a folder: %q", got)
	}
}

func TestPagesOfAFolderWithManyNames(t *testing.T) {
	folder := t.TempDir()
	var names []string
	for i := range 500 {
		name := strconv.Itoa(i * 7919 % 500)
		put(t, folder+"/"+name, "")
		names = append(names, name)
	}
	slices.Sort(names)
	for _, limit := range []int{1, 7, 499, 500, 501} {
		if got := listAll(t, newFiles(), folder, 1, limit); got != strings.Join(names, " ") {
			t.Errorf("limit %d: %s", limit, got)
		}
	}
}

type page struct {
	Entries []Entry `json:"entries"`
	More    bool    `json:"more"`
}

// listAll reads all pages, and returns the paths below the folder.
func listAll(t *testing.T, f *Files, folder string, depth, limit int) string {
	t.Helper()
	var found []string
	params := fields{"path": folder, "depth": depth, "limit": limit}
	for {
		answer := must[page](t, f.list, params)
		for _, entry := range answer.Entries {
			found = append(found, strings.TrimPrefix(string(entry.Path), folder+"/"))
		}
		if !answer.More {
			return strings.Join(found, " ")
		}
		if len(answer.Entries) != limit {
			t.Fatalf("%d entries of %d", len(answer.Entries), limit)
		}
		params["after"] = answer.Entries[limit-1].Path
	}
}

func TestAListGoesOnWhereAnEntryWasRemoved(t *testing.T) {
	folder := t.TempDir()
	put(t, folder+"/a/x", "")
	put(t, folder+"/c", "")
	for after, want := range map[string]string{"/a/gone": "/a/x", "/a/gone/deep": "/a/x", "/b": "/c", "/a/x/y": "/c", "/z": ""} {
		answer := must[page](t, newFiles().list, fields{"path": folder, "depth": 9, "after": folder + after, "limit": 1})
		switch {
		case len(answer.Entries) > 0 && string(answer.Entries[0].Path) != folder+want, len(answer.Entries) == 0 && want != "":
			t.Errorf("after %s: %+v", after, answer)
		}
	}
}

func TestAPageOfAListHasABoundedSize(t *testing.T) {
	folder := t.TempDir()
	for i := range 1000 {
		put(t, folder+"/"+strings.Repeat("\xff", 250)+strconv.Itoa(i), "")
	}
	f := newFiles()
	params := fields{"path": folder}
	total, pages := 0, 0
	for more := true; more; pages++ {
		answer, err := f.list(t.Context(), params.json(t))
		if err != nil {
			t.Fatal(err)
		}
		var decoded page
		_ = convert(t, answer, &decoded)
		if size := len(fields{"answer": answer}.json(t)); size > 600<<10 {
			t.Errorf("%d bytes", size)
		}
		if more = decoded.More; more {
			params["after"] = decoded.Entries[len(decoded.Entries)-1].Path
		}
		total += len(decoded.Entries)
	}
	if total != 1000 || pages < 2 {
		t.Errorf("%d entries in %d pages", total, pages)
	}
}

func TestListsThatAreRefused(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	file := put(t, folder+"/file", "")
	link(t, "loop", folder+"/loop")
	for _, wrong := range []struct {
		params fields
		code   fault.Code
	}{
		{fields{"path": file}, fault.Conflict},
		{fields{"path": folder + "/loop"}, fault.Conflict},
		{fields{"path": folder + "/missing"}, fault.NotFound},
		{fields{"path": "/dev/null"}, fault.Conflict},
		{fields{"path": folder, "depth": 0}, fault.Validation},
		{fields{"path": folder, "depth": 65}, fault.Validation},
		{fields{"path": folder, "limit": 0}, fault.Validation},
		{fields{"path": folder, "limit": 1001}, fault.Validation},
		{fields{"path": folder, "after": "/elsewhere"}, fault.Validation},
		{fields{"path": folder, "after": folder}, fault.Validation},
		{fields{"path": folder, "after": folder + "/../x"}, fault.Validation},
		{fields{"path": folder, "after": "%"}, fault.Validation},
	} {
		_, err := f.list(t.Context(), wrong.params.json(t))
		mustRefuse(t, err, wrong.code, "")
	}
}

func TestListOfProcHasTheProcesses(t *testing.T) {
	answer := must[page](t, newFiles().list, fields{"path": "/proc"})
	for _, entry := range answer.Entries {
		if entry.Path == "/proc/1" && entry.Type == "directory" {
			return
		}
	}
	t.Error("no /proc/1")
}
