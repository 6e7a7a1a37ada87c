package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/fault"
)

// maxWatchers is how many files.watch may run at once. The kernel allows root 128 instances of inotify by default, and
// programs of the machine need some too.
const maxWatchers = 32

// watch serves files.watch: it sends an event for each change below a folder, or of a file, as lines of JSON. It uses
// inotify directly, because the libraries for it do not watch the folders below, and do not tell which two events are
// one renaming.
func (f *Files) watch(ctx context.Context, params []byte, open func(any) (calls.Conn, error)) (any, error) {
	var request struct {
		Path      Path `json:"path"`
		Recursive bool `json:"recursive"`
	}
	if err := decode(params, &request); err != nil {
		return nil, err
	}
	if err := request.Path.mustBe(); err != nil {
		return nil, err
	}
	count := f.watchers.Add(1)
	defer f.watchers.Add(-1)
	if count > maxWatchers {
		return nil, conflict("32 watches run already", request.Path)
	}
	w := &watcher{ctx: ctx, path: request.Path, isRecursive: request.Recursive}
	if err := w.begin(); err != nil {
		return nil, problem(request.Path, err)
	}
	defer func() { w.end() }()
	conn, err := open(nothing{})
	if err != nil {
		return nil, err
	}
	w.conn = conn
	w.emit(event{Type: "ready"})
	for {
		err := w.run()
		if err == errRemoved {
			w.emit(event{Type: "removed", Path: request.Path})
			return nothing{}, w.flush()
		}
		if err != errLost {
			return nil, problem(request.Path, err)
		}
		// Folders that were made or moved meanwhile are unknown, so all are looked up again.
		w.end()
		if err := w.begin(); err == unix.ENOENT || err == unix.ENOTDIR {
			w.emit(event{Type: "removed", Path: request.Path})
			return nothing{}, w.flush()
		} else if err != nil {
			return nil, problem(request.Path, err)
		}
		w.emit(event{Type: "overflow"})
	}
}

// event is one line of files.watch.
type event struct {
	Type string `json:"type"`
	Path Path   `json:"path,omitempty"`
	From Path   `json:"from,omitempty"` // of a renaming: the path before
}

var (
	errRemoved = errors.New("what is watched was removed")
	errLost    = errors.New("the kernel has dropped events")
)

// watcher is a watch while it runs. Only one goroutine uses it.
type watcher struct {
	ctx         context.Context
	path        Path
	isRecursive bool
	conn        io.Writer

	tree  watchTree
	only  string   // the name of the file, if the path is that of a file; the tree has then only the folder
	queue *os.File // the events
	moved *movedFrom

	lines bytes.Buffer // not sent yet
	last  event        // the last event in lines
}

// movedFrom is the first half of a renaming. The second half follows at once, unless the new place is not watched.
type movedFrom struct {
	cookie uint32
	folder *watched
	name   string
}

// begin starts to watch.
func (w *watcher) begin() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == unix.EMFILE {
		return conflict("the kernel has no more watches for the machine (fs.inotify.max_user_instances)", w.path)
	}
	if err != nil {
		return err
	}
	w.tree = watchTree{queue: fd}
	w.queue = os.NewFile(uintptr(fd), "inotify")
	w.moved = nil
	if err := w.addRoot(); err != nil {
		w.end()
		return err
	}
	return nil
}

// addRoot watches the folder at the path and what is below it. For a file it watches the folder of the file, because a
// program that saves a file often replaces it.
func (w *watcher) addRoot() error {
	found, err := openAt(unix.AT_FDCWD, string(w.path), unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(found)
	var info unix.Stat_t
	if err := unix.Fstat(found, &info); err != nil {
		return err
	}
	if isKernels, err := isOfKernel(found); err != nil {
		return err
	} else if isKernels {
		return conflict("the kernel makes the files there, and does not tell when they change", w.path)
	}
	if typeOf(&info) == typeDirectory {
		w.only = ""
		return w.tree.addRoot(found, w.path, w.isRecursive)
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(found))
	if err != nil {
		return err
	}
	folder, name := Path(real).split()
	above, err := openFolder(folder)
	if err != nil {
		return err
	}
	defer unix.Close(above)
	w.only = name
	return w.tree.addRoot(above, folder, false)
}

func (w *watcher) end() { _ = w.queue.Close() }

const (
	// queueRead is how many bytes of events are read at once.
	queueRead = 8 << 10
	// pairPatience is how long the second half of a renaming may take. The kernel puts both halves into the queue one
	// after the other.
	pairPatience = 20 * time.Millisecond
	// maxLines is after how many collected bytes the lines are sent, even if more events wait.
	maxLines = 32 << 10
)

// run sends events until the connection or the watch ends.
func (w *watcher) run() error {
	stop := context.AfterFunc(w.ctx, func() { _ = w.queue.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var space [queueRead]byte
	for {
		waiting, err := unix.IoctlGetInt(w.tree.queue, unix.TIOCINQ)
		if err != nil {
			return err
		}
		if waiting == 0 {
			w.tree.forgetKnown()
			if err := w.flush(); err != nil {
				return err
			}
		}
		deadline := time.Time{}
		if w.moved != nil {
			deadline = time.Now().Add(pairPatience)
		}
		if err := errors.Join(w.queue.SetReadDeadline(deadline), w.ctx.Err()); err != nil {
			return err
		}
		n, err := w.queue.Read(space[:])
		if errors.Is(err, os.ErrDeadlineExceeded) && w.ctx.Err() == nil {
			w.endMove()
			continue
		}
		if err != nil {
			return errors.Join(w.ctx.Err(), err)
		}
		if err := w.handleAll(space[:n]); err != nil {
			return err
		}
	}
}

// emit adds an event to the lines that flush sends. Several changes of one file in a row are one event.
func (w *watcher) emit(e event) {
	if e == w.last && (e.Type == "changed" || e.Type == "overflow") {
		return
	}
	w.last = e
	line, _ := json.Marshal(e) // cannot fail
	w.lines.Write(line)
	w.lines.WriteByte('\n')
}

// flush sends the lines.
func (w *watcher) flush() error {
	if w.lines.Len() == 0 {
		return nil
	}
	_, err := w.conn.Write(w.lines.Bytes())
	w.lines.Reset()
	w.last = event{}
	return err
}

var errTooMany = fault.New(fault.Conflict, "there are more than 8192 folders to watch, or the kernel allows no more (fs.inotify.max_user_watches)")
