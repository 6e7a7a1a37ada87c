package files

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxWatched is how many folders one watch has at most. Each needs about 1 KiB in the kernel, which allows the machine
// a limited number in all.
const maxWatched = 8192

// watchTree holds the folders that are watched. An event of the kernel has only the number of a watched folder and a
// name in it. No folder is held open, because then the kernel would not report that the folder is removed.
type watchTree struct {
	queue    int // the inotify instance
	byNumber map[int32]*watched
	root     *watched
	rootPath Path // as the host knows it
	realRoot Path // without symbolic links

	withKnown []*watched // the folders with known names
}

// watched is a folder that is watched.
type watched struct {
	number   int32
	above    *watched // nil: the root
	name     string
	children map[string]*watched

	// known has names that were found in a new folder and reported. Their events may still be in the queue.
	known map[string]struct{}
}

// addRoot watches an open folder, and with isRecursive all folders below.
func (t *watchTree) addRoot(folder int, path Path, isRecursive bool) error {
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(folder))
	if err != nil {
		return err
	}
	t.byNumber, t.rootPath, t.realRoot = map[int32]*watched{}, path, Path(real)
	t.root, err = t.addOne(folder, nil, "")
	if err != nil || !isRecursive {
		return err
	}
	return t.addBelow(folder, t.root, nil, 0)
}

// pathOf returns the path of a folder below root.
func (f *watched) pathOf(root Path) Path {
	if f.above == nil {
		return root
	}
	return f.above.pathOf(root).join(f.name)
}

// watchedEvents are the changes that the kernel reports. With IN_EXCL_UNLINK it leaves out files that are still open
// but have no name any more.
const watchedEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// addOne watches an open folder.
func (t *watchTree) addOne(folder int, above *watched, name string) (*watched, error) {
	if len(t.byNumber) >= maxWatched {
		return nil, errTooMany
	}
	number, err := unix.InotifyAddWatch(t.queue, "/proc/self/fd/"+strconv.Itoa(folder), watchedEvents)
	if err == unix.ENOSPC {
		return nil, errTooMany
	}
	if err != nil {
		return nil, err
	}
	added, isWatched := t.byNumber[int32(number)]
	if !isWatched {
		added = &watched{number: int32(number)}
		t.byNumber[added.number] = added
	}
	t.move(added, above, name)
	return added, nil
}

// move puts a folder to another place in the tree.
func (t *watchTree) move(f *watched, above *watched, name string) {
	if f == t.root {
		return
	}
	if f.above != nil && f.above.children[f.name] == f {
		delete(f.above.children, f.name)
	}
	f.above, f.name = above, name
	if above != nil {
		if above.children == nil {
			above.children = map[string]*watched{}
		}
		above.children[name] = f
	}
}

// addBelow watches all folders below one that is open and watched. It calls found, unless that is nil, with each name.
// It leaves out folders that have just been removed, and those whose files the kernel generates.
func (t *watchTree) addBelow(folder int, at *watched, found func(*watched, string), level int) error {
	names, err := openToRead(folder, ".")
	if err != nil || level == maxLevels {
		return nil
	}
	defer unix.Close(names)
	err = readNames(names, func(name string) error {
		if found != nil {
			found(at, name)
		}
		inside, err := openAt(names, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		if err != nil {
			return nil // no folder
		}
		defer unix.Close(inside)
		if isKernels, err := isOfKernel(inside); err != nil || isKernels {
			return err
		}
		below, err := t.addOne(inside, at, name)
		if err != nil {
			return err
		}
		return t.addBelow(inside, below, found, level+1)
	})
	return ignore(unix.ENOENT, err)
}

// addNew watches a folder that has just appeared, and all below. It calls found with each name in them.
func (t *watchTree) addNew(above *watched, name string, found func(*watched, string)) error {
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	}
	path := string(above.pathOf(t.realRoot).join(name))
	folder, err := again(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, path, how) })
	if err != nil {
		return nil // it is gone again
	}
	defer unix.Close(folder)
	if isKernels, err := isOfKernel(folder); err != nil || isKernels {
		return err
	}
	added, err := t.addOne(folder, above, name)
	if err != nil {
		return err
	}
	return t.addBelow(folder, added, found, 0)
}

// remember notes that a name in a new folder was reported.
func (t *watchTree) remember(f *watched, name string) {
	if f.known == nil {
		f.known = map[string]struct{}{}
		t.withKnown = append(t.withKnown, f)
	}
	f.known[name] = struct{}{}
}

// forgetKnown is called when the queue is empty: no event of a known name can follow.
func (t *watchTree) forgetKnown() {
	for _, f := range t.withKnown {
		f.known = nil
	}
	t.withKnown = nil
}

// drop stops to watch a folder and all below.
func (t *watchTree) drop(f *watched) {
	for _, child := range f.children {
		t.drop(child)
	}
	_, _ = unix.InotifyRmWatch(t.queue, uint32(f.number)) // fails if the folder was removed
	t.forget(f)
}

// forget takes a folder that is not watched any more out of the tree.
func (t *watchTree) forget(f *watched) {
	delete(t.byNumber, f.number)
	if f.above != nil && f.above.children[f.name] == f {
		delete(f.above.children, f.name)
	}
}
