package files

import (
	"context"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

// temporary is a file that gets its content before it gets its name, so that others see the whole file or none. On most
// file systems it has no name until then, and the kernel frees it when the machine is cut off. On the others it is a
// hidden file in the same folder.
type temporary struct {
	files  *Files
	folder int

	mu      sync.Mutex // held during each step, because Close can discard the file at any time
	file    int        // -1 after discard
	name    string     // empty while it has none
	written int64
	flushed int64 // the kernel was asked to write the bytes below this offset to the disk
}

var errPoweringOff = fault.New(fault.Conflict, "the machine is powering off")

// newTemporary makes an empty file in an open folder. The caller ends with discard in any case.
func (f *Files) newTemporary(ctx context.Context, folder int) (*temporary, error) {
	t := &temporary{files: f, folder: folder, file: -1}
	if !f.temporaries.add(t) {
		return nil, errPoweringOff
	}
	err := f.change(ctx, func() (err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		f.leftovers.sweep(folder)
		t.file, err = t.open(".", unix.O_TMPFILE)
		if err == unix.EOPNOTSUPP || err == unix.EISDIR {
			t.name = f.leftovers.newName()
			t.file, err = t.open(t.name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)
		}
		return err
	})
	if err != nil {
		t.discard()
		return nil, err
	}
	return t, nil
}

func (t *temporary) open(name string, flags int) (int, error) {
	return again(func() (int, error) { return unix.Openat(t.folder, name, flags|unix.O_WRONLY|unix.O_CLOEXEC, 0o600) })
}

// change runs one step with the file, unless it was discarded.
func (t *temporary) change(ctx context.Context, step func() error) error {
	return t.files.change(ctx, func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.file < 0 {
			return errPoweringOff
		}
		return step()
	})
}

// flushEvery is after how many bytes the kernel is asked to begin to write them to the disk. Without that, the end of a
// long upload and each freeze would wait for the disk to write all of it.
const flushEvery = 8 << 20

// write appends bytes.
func (t *temporary) write(ctx context.Context, data []byte) error {
	return t.change(ctx, func() error {
		for len(data) > 0 {
			n, err := again(func() (int, error) { return unix.Write(t.file, data) })
			if err != nil {
				return err
			}
			data = data[n:]
			t.written += int64(n)
		}
		if t.written-t.flushed >= flushEvery {
			// An error comes back from sync.
			_ = unix.SyncFileRange(t.file, t.flushed, t.written-t.flushed, unix.SYNC_FILE_RANGE_WRITE)
			t.flushed = t.written
		}
		return nil
	})
}

// sync waits until the content is on the disk. It stays outside of the gate, because it may take long. A freeze writes
// the same bytes to the disk, so sync neither delays the freeze nor hangs in a frozen file system.
func (t *temporary) sync() error {
	t.mu.Lock()
	file := t.file
	t.mu.Unlock()
	_, err := again(func() (int, error) { return 0, unix.Fsync(file) })
	return err
}

// place gives the file its name. If another file has the name already, place replaces it, or returns EEXIST when exclusive
// is true. First it calls check, whose error it returns without giving the name. No other request changes a name between
// the check and this.
func (t *temporary) place(ctx context.Context, name string, exclusive bool, check func() error) error {
	return t.change(ctx, func() error {
		unlock, err := t.files.naming.lock(t.folder)
		if err != nil {
			return err
		}
		defer unlock()
		if err := check(); err != nil {
			return err
		}
		if t.name != "" {
			flags := uint(0)
			if exclusive {
				flags = unix.RENAME_NOREPLACE
			}
			return t.rename(name, flags)
		}
		err = t.link(name)
		if err != unix.EEXIST || exclusive {
			return err
		}
		t.name = t.files.leftovers.newName()
		if err := t.link(t.name); err != nil {
			return err
		}
		return t.rename(name, 0)
	})
}

func (t *temporary) link(name string) error {
	return unix.Linkat(t.file, "", t.folder, name, unix.AT_EMPTY_PATH)
}

func (t *temporary) rename(name string, flags uint) error {
	err := unix.Renameat2(t.folder, t.name, t.folder, name, flags)
	if err == nil {
		t.files.leftovers.drop(t.name)
		t.name = ""
	}
	return err
}

// discard closes the file, and deletes it if it was not placed. It waits while the root file system is frozen, because
// the kernel then frees the space.
func (t *temporary) discard() {
	t.files.temporaries.drop(t)
	_ = t.files.change(context.Background(), func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.name != "" {
			_ = unix.Unlinkat(t.folder, t.name, 0)
			t.files.leftovers.drop(t.name)
			t.name = ""
		}
		if t.file >= 0 {
			_ = unix.Close(t.file)
			t.file = -1
		}
		return nil
	})
}

// temporaries is the set of the temporary files that exist.
type temporaries struct {
	mu       sync.Mutex
	all      map[*temporary]struct{}
	isClosed bool
}

// add adds a file, or returns false after close.
func (s *temporaries) add(t *temporary) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return false
	}
	if s.all == nil {
		s.all = map[*temporary]struct{}{}
	}
	s.all[t] = struct{}{}
	return true
}

func (s *temporaries) drop(t *temporary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, t)
}

// close lets no more files be added, and returns those that exist.
func (s *temporaries) close() []*temporary {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed = true
	return slices.Collect(maps.Keys(s.all))
}
