package files

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"
)

// naming lets only one request at a time change names in the folders of a file system. So a request can check which file
// has a name and then replace that file. Each file system has its own lock: one that hangs, such as a network file system
// or a FUSE file system, does not block requests to the others.
type naming struct{ locks sync.Map } // the key is the number of the device, the value is a *sync.Mutex

// lock waits for the lock of the file system of an open folder. The caller then calls unlock.
func (n *naming) lock(folder int) (unlock func(), err error) {
	var info unix.Stat_t
	if _, err := again(func() (int, error) { return 0, unix.Fstat(folder, &info) }); err != nil {
		return nil, err
	}
	found, _ := n.locks.LoadOrStore(info.Dev, new(sync.Mutex))
	lock := found.(*sync.Mutex)
	lock.Lock()
	return lock.Unlock, nil
}

// changeNames runs one step that changes names in an open folder. While it runs, no other request changes names there.
func (f *Files) changeNames(ctx context.Context, folder int, step func() error) error {
	return f.change(ctx, func() error {
		unlock, err := f.naming.lock(folder)
		if err != nil {
			return err
		}
		defer unlock()
		return step()
	})
}

// unchecked is the check for place when the file may replace any other file.
func unchecked() error { return nil }
