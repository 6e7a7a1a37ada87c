package files

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"
)

// naming makes the steps that change names in folders run one after another, so that a request can check what has a name
// and then replace it. Each file system has a lock of its own: a file system that hangs, such as one of a network or of a
// program, does not hold up the others.
type naming struct{ locks sync.Map } // from the number of the device to a *sync.Mutex

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

// unchecked is the check of what may replace anything.
func unchecked() error { return nil }
