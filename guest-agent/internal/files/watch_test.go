package files

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

// watching is the host's side of files.watch.
type watching struct {
	t      *testing.T
	folder string
	lines  *bufio.Scanner
	out    *io.PipeReader
	stop   context.CancelFunc
	ended  chan error
}

// startWatch begins files.watch and waits until it is ready.
func startWatch(t *testing.T, f *Files, path string, recursive bool) *watching {
	t.Helper()
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	w := &watching{t: t, folder: path, lines: bufio.NewScanner(out), out: out, stop: stop, ended: make(chan error, 1)}
	go func() {
		_, err := f.watch(ctx, fields{"path": encode(path), "recursive": recursive}.json(t), newStream(nil, in).open)
		_ = in.Close()
		w.ended <- err
	}()
	t.Cleanup(func() { stop(); _ = out.Close() })
	if got := w.next(); got != "ready" {
		t.Fatal(got)
	}
	return w
}

// next returns the next event as text, with paths below the folder.
func (w *watching) next() string {
	w.t.Helper()
	if !w.lines.Scan() {
		w.t.Fatalf("the watch has ended: %v", <-w.ended)
	}
	var e event
	if err := json.Unmarshal(w.lines.Bytes(), &e); err != nil {
		w.t.Fatal(err)
	}
	text := e.Type
	for _, path := range []Path{e.From, e.Path} {
		if path != "" {
			text += " " + strings.TrimPrefix(string(path), w.folder+"/")
		}
	}
	return text
}

// expect compares the next events. Changes of attributes and of content count only where they are wanted.
func (w *watching) expect(wanted ...string) {
	w.t.Helper()
	for _, want := range wanted {
		got := w.next()
		for got != want && strings.HasPrefix(got, "changed ") {
			got = w.next()
		}
		if got != want {
			w.t.Fatalf("%q, want %q", got, want)
		}
	}
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestAWatchReportsEachKindOfChange(t *testing.T) {
	folder := t.TempDir()
	put(t, folder+"/file", "")
	w := startWatch(t, newFiles(), folder, false)
	put(t, folder+"/odd\n\xff", "content")
	w.expect("created odd\n\xff", "changed odd\n\xff")
	put(t, folder+"/file", "content")
	w.expect("changed file")
	check(t, os.Chmod(folder+"/file", 0o600))
	w.expect("changed file")
	check(t, os.Rename(folder+"/file", folder+"/file2"))
	w.expect("renamed file file2")
	check(t, os.Remove(folder+"/file2"))
	w.expect("removed file2")
	link(t, "nowhere", folder+"/link")
	w.expect("created link")
	check(t, os.Mkdir(folder+"/sub", 0o755))
	w.expect("created sub")
	put(t, folder+"/sub/unseen", "")
	check(t, os.Rename(folder+"/sub/unseen", folder+"/seen"))
	w.expect("created seen")
	check(t, os.Rename(folder+"/seen", folder+"/sub/unseen"))
	w.expect("removed seen")
}

func TestAWatchDoesNotShowTemporaryFiles(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	put(t, folder+"/file", "")
	w := startWatch(t, f, folder, false)
	for _, name := range []string{"/new", "/file", "/#1"} {
		if _, err := write(t, f, fields{"path": encode(folder + name)}, "content"); err != nil {
			t.Fatal(err)
		}
	}
	check(t, os.Chmod(folder+"/#1", 0o600))
	for _, want := range []string{"created new", "changed file", "created #1", "changed #1"} {
		if got := w.next(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestARecursiveWatchFollowsNewAndMovedFolders(t *testing.T) {
	folder := t.TempDir()
	put(t, folder+"/a/b/file", "")
	other := t.TempDir()
	put(t, other+"/full/deep/file", "")
	w := startWatch(t, newFiles(), folder, true)
	put(t, folder+"/a/b/new", "")
	w.expect("created a/b/new")
	check(t, os.Rename(folder+"/a/b", folder+"/moved"))
	w.expect("renamed a/b moved")
	put(t, folder+"/moved/file", "x")
	w.expect("changed moved/file")
	check(t, os.Rename(other+"/full", folder+"/a/full"))
	w.expect("created a/full", "created a/full/deep", "created a/full/deep/file")
	put(t, folder+"/a/full/deep/file", "x")
	w.expect("changed a/full/deep/file")
	check(t, os.Rename(folder+"/a/full", other+"/full"))
	w.expect("removed a/full")
	put(t, other+"/full/deep/unseen", "")
	check(t, os.RemoveAll(folder+"/moved"))
	got := []string{w.next(), w.next()}
	slices.Sort(got)
	if want := []string{"removed moved/file", "removed moved/new"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	w.expect("removed moved")
	check(t, os.Mkdir(folder+"/moved", 0o755))
	w.expect("created moved")
	put(t, folder+"/moved/again", "")
	w.expect("created moved/again")
}

// However the scan of a new folder and its events meet, each file is reported as created exactly once.
func TestEachFileInNewFoldersIsReportedOnce(t *testing.T) {
	folder := t.TempDir()
	w := startWatch(t, newFiles(), folder, true)
	const folders, inEach = 40, 5
	go func() {
		for i := range folders {
			path := folder + "/" + strconv.Itoa(i)
			_ = os.MkdirAll(path+"/x/y", 0o755)
			for j := range inEach {
				_ = os.WriteFile(path+"/x/y/"+strconv.Itoa(j), []byte("x"), 0o644)
			}
		}
		_ = os.WriteFile(folder+"/end", nil, 0o644)
	}()
	counts := map[string]int{}
	for event := w.next(); event != "created end"; event = w.next() {
		if strings.HasPrefix(event, "created ") {
			counts[event]++
		}
	}
	// Events of the last folders may follow: they are in other folders than "end".
	check(t, os.WriteFile(folder+"/0/x/y/last", nil, 0o644))
	for event := w.next(); event != "created 0/x/y/last"; event = w.next() {
		if strings.HasPrefix(event, "created ") {
			counts[event]++
		}
	}
	if len(counts) != folders*(3+inEach) {
		t.Errorf("%d paths, want %d", len(counts), folders*(3+inEach))
	}
	for event, count := range counts {
		if count != 1 {
			t.Errorf("%s: %d times", event, count)
		}
	}
}

func TestAWatchEndsWhenItsFolderIsRemovedOrMoved(t *testing.T) {
	for name, end := range map[string]func(string) error{
		"removed": os.RemoveAll,
		"moved":   func(path string) error { return os.Rename(path, path+"2") },
	} {
		folder := t.TempDir() + "/folder"
		put(t, folder+"/sub/file", "")
		w := startWatch(t, newFiles(), folder, true)
		check(t, end(folder))
		for event := w.next(); event != "removed "+folder; event = w.next() {
		}
		if err := <-w.ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAWatchOfAFile(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	path := put(t, folder+"/file", "")
	link(t, "file", folder+"/link")
	for _, watched := range []string{path, folder + "/link"} {
		put(t, path, "")
		w := startWatch(t, f, watched, true)
		put(t, folder+"/other", "x")
		put(t, path, "x")
		w.expect("changed " + watched)
		if _, err := write(t, f, fields{"path": path}, "new"); err != nil {
			t.Fatal(err)
		}
		w.expect("changed " + watched)
		check(t, os.Remove(path))
		w.expect("removed " + watched)
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
	}
}

func TestAWatchThatIsCutEnds(t *testing.T) {
	folder := t.TempDir()
	f := newFiles()
	w := startWatch(t, f, folder, true)
	w.stop()
	if err := <-w.ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	w = startWatch(t, f, folder, true)
	_ = w.out.CloseWithError(errCut)
	put(t, folder+"/file", "")
	if err := <-w.ended; !errors.Is(err, errCut) {
		t.Error(err)
	}
	if count := f.watchers.Load(); count != 0 {
		t.Errorf("%d watches are left", count)
	}
}

// While nobody takes the events, the queue of the kernel fills up. The watch then says that events were lost, and also
// sees folders that were made meanwhile.
func TestAWatchSaysThatEventsWereLost(t *testing.T) {
	folder := t.TempDir()
	w := startWatch(t, newFiles(), folder, true)
	content, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	limit, _ := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || limit == 0 || limit > 100_000 {
		t.Skip("max_queued_events: ", limit, err)
	}
	put(t, folder+"/first", "")
	for i := range limit + 1000 {
		check(t, os.WriteFile(folder+"/"+strconv.Itoa(i%2), nil, 0o644), os.Remove(folder+"/"+strconv.Itoa(i%2)))
	}
	check(t, os.Mkdir(folder+"/new", 0o755))
	for event := w.next(); event != "overflow"; event = w.next() {
	}
	put(t, folder+"/new/file", "")
	w.expect("created new/file")
}

func TestWatchesThatAreRefused(t *testing.T) {
	f := newFiles()
	folder := t.TempDir()
	for path, want := range map[string]fault.Code{folder + "/missing": fault.NotFound, "/proc/sys": fault.Conflict, "/sys/kernel": fault.Conflict} {
		_, err := f.watch(t.Context(), fields{"path": path}.json(t), nil)
		mustRefuse(t, err, want, path)
	}
	for range maxWatchers {
		startWatch(t, f, folder, false)
	}
	_, err := f.watch(t.Context(), fields{"path": folder}.json(t), nil)
	mustRefuse(t, err, fault.Conflict, "32 watches")
}

func TestAWatchOfTooManyFolders(t *testing.T) {
	folder := mountSmall(t, "64m")
	for i := range maxWatched - 2 {
		check(t, os.Mkdir(folder+"/"+fmt.Sprint(i), 0o755))
	}
	f := newFiles()
	w := startWatch(t, f, folder, true)
	check(t, os.Mkdir(folder+"/last", 0o755))
	w.expect("created last")
	check(t, os.Mkdir(folder+"/over", 0o755))
	w.expect("created over", "overflow")
	put(t, folder+"/last/file", "")
	w.expect("created last/file")
	w.stop()
	_, err := f.watch(t.Context(), fields{"path": folder, "recursive": true}.json(t), nil)
	mustRefuse(t, err, fault.Conflict, "8192 folders")
}

func TestAWatchSkipsFilesOfTheKernel(t *testing.T) {
	folder := t.TempDir()
	check(t, os.Mkdir(folder+"/proc", 0o755))
	if err := unix.Mount("proc", folder+"/proc", "proc", 0, ""); err != nil {
		t.Skip("mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder+"/proc", unix.MNT_DETACH) })
	w := startWatch(t, newFiles(), folder, true)
	put(t, folder+"/file", "")
	w.expect("created file")
}
