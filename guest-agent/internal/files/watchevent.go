package files

import (
	"bytes"
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"
)

// change is one event of the kernel.
type change struct {
	folder *watched
	mask   uint32
	cookie uint32 // the same in both halves of a renaming
	name   string // empty: the folder itself
}

func (c *change) is(mask uint32) bool { return c.mask&mask != 0 }

// handleAll handles the events that one read of the queue has returned.
func (w *watcher) handleAll(events []byte) error {
	for len(events) >= unix.SizeofInotifyEvent {
		number := int32(binary.NativeEndian.Uint32(events))
		c := change{
			folder: w.tree.byNumber[number],
			mask:   binary.NativeEndian.Uint32(events[4:]),
			cookie: binary.NativeEndian.Uint32(events[8:]),
		}
		size := binary.NativeEndian.Uint32(events[12:])
		events = events[unix.SizeofInotifyEvent:]
		name, _, _ := bytes.Cut(events[:size], []byte{0}) // null bytes fill it up
		c.name = string(name)
		events = events[size:]
		if err := w.handle(&c); err != nil {
			return err
		}
		if w.lines.Len() >= maxLines {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// handle handles one event.
func (w *watcher) handle(c *change) error {
	if c.is(unix.IN_Q_OVERFLOW) {
		return errLost
	}
	if w.moved != nil && !(c.is(unix.IN_MOVED_TO) && c.cookie == w.moved.cookie) {
		w.endMove()
	}
	if c.folder == nil { // not watched any more
		return nil
	}
	if c.folder == w.tree.root && c.is(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT|unix.IN_IGNORED) {
		return errRemoved
	}
	switch {
	case c.is(unix.IN_IGNORED):
		w.tree.forget(c.folder)
		return nil
	case w.only != "":
		return w.handleOnly(c)
	case c.name == "":
		if c.folder == w.tree.root && c.is(unix.IN_ATTRIB) {
			w.emit(event{Type: "changed", Path: w.path})
		}
		return nil
	}
	w.handleName(c)
	return nil
}

// handleOnly handles an event of the folder of a file that is watched. The file exists until the watch ends, so what
// moves to its name replaces it.
func (w *watcher) handleOnly(c *change) error {
	switch {
	case c.name != w.only:
	case c.is(unix.IN_DELETE | unix.IN_MOVED_FROM):
		return errRemoved
	default:
		w.emit(event{Type: "changed", Path: w.path})
	}
	return nil
}

// handleName handles an event of a name in a folder.
func (w *watcher) handleName(c *change) {
	path := w.pathOf(c.folder, c.name)
	_, isKnown := c.folder.known[c.name]
	if !c.is(unix.IN_MODIFY | unix.IN_ATTRIB) {
		delete(c.folder.known, c.name)
	}
	switch {
	case w.isHidden(c):
	case c.is(unix.IN_MODIFY | unix.IN_ATTRIB):
		w.emit(event{Type: "changed", Path: path})
	case c.is(unix.IN_DELETE):
		w.emit(event{Type: "removed", Path: path})
	case c.is(unix.IN_MOVED_FROM):
		w.moved = &movedFrom{c.cookie, c.folder, c.name}
	case c.is(unix.IN_MOVED_TO) && w.moved != nil:
		from := w.moved
		w.moved = nil
		if isTemporaryName(from.name) {
			w.emit(event{Type: "changed", Path: path}) // files.write has replaced a file
			return
		}
		w.emit(event{Type: "renamed", Path: path, From: w.pathOf(from.folder, from.name)})
		if folder := from.folder.children[from.name]; folder != nil {
			w.tree.move(folder, c.folder, c.name)
		}
	case c.is(unix.IN_CREATE) && isKnown: // it was reported when its folder was found
	case c.is(unix.IN_CREATE | unix.IN_MOVED_TO):
		w.emit(event{Type: "created", Path: path})
		w.addNew(c)
	}
}

// isHidden reports whether an event is of a temporary file, which files.write makes. The kernel shows those without a name
// as "#" with a number.
func (w *watcher) isHidden(c *change) bool {
	if isTemporaryName(c.name) {
		return !c.is(unix.IN_MOVED_FROM)
	}
	if !strings.HasPrefix(c.name, "#") || !c.is(unix.IN_MODIFY|unix.IN_ATTRIB) {
		return false
	}
	_, err := statAt(unix.AT_FDCWD, string(c.folder.pathOf(w.tree.realRoot).join(c.name)))
	return err != nil
}

func (w *watcher) pathOf(folder *watched, name string) Path {
	return folder.pathOf(w.tree.rootPath).join(name)
}

// addNew watches a folder that has appeared, and reports what is in it already.
func (w *watcher) addNew(c *change) {
	if !c.is(unix.IN_ISDIR) || !w.isRecursive {
		return
	}
	err := w.tree.addNew(c.folder, c.name, func(folder *watched, name string) {
		w.tree.remember(folder, name)
		w.emit(event{Type: "created", Path: w.pathOf(folder, name)})
	})
	if err != nil {
		w.emit(event{Type: "overflow"}) // there are too many folders, and changes in this one will not be reported
	}
}

// endMove reports the first half of a renaming without a second half: something was moved to a folder that is not
// watched.
func (w *watcher) endMove() {
	from := w.moved
	w.moved = nil
	if !isTemporaryName(from.name) {
		w.emit(event{Type: "removed", Path: w.pathOf(from.folder, from.name)})
	}
	if folder := from.folder.children[from.name]; folder != nil {
		w.tree.drop(folder)
	}
}
