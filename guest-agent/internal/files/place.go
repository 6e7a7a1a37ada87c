package files

import (
	"strings"

	"golang.org/x/sys/unix"
)

// place is a name in an open folder. The folder stays the same when programs move or replace what is at its path.
type place struct {
	folder int // a descriptor made with O_PATH
	name   string
}

func (p place) close() { _ = unix.Close(p.folder) }

// openFolder opens a folder for use as a place. Symbolic links in the path are followed, also the last one.
func openFolder(path Path) (int, error) { return openFolderAt(unix.AT_FDCWD, string(path)) }

func openFolderAt(folder int, path string) (int, error) {
	return openAt(folder, path, unix.O_PATH|unix.O_DIRECTORY)
}

func openAt(folder int, path string, flags int) (int, error) {
	return again(func() (int, error) { return unix.Openat(folder, path, flags|unix.O_CLOEXEC, 0) })
}

// openPlace opens the folder of a path. It does not look at the last name of the path.
func openPlace(path Path) (place, error) {
	folder, name := path.split()
	fd, err := openFolder(folder)
	return place{fd, name}, err
}

func statAt(folder int, name string) (unix.Stat_t, error) {
	var info unix.Stat_t
	_, err := again(func() (int, error) {
		return 0, unix.Fstatat(folder, name, &info, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	})
	return info, err
}

func readLink(folder int, name string) (string, error) {
	space := make([]byte, maxPath)
	n, err := again(func() (int, error) { return unix.Readlinkat(folder, name, space) })
	return string(space[:max(n, 0)]), err
}

// maxLinks is how many symbolic links follow resolves, as in the kernel.
const maxLinks = 40

// follow returns the place that the symbolic links at a place lead to. Nothing has to be there. It closes the old place,
// and after an error returns none.
func (p place) follow() (place, error) {
	for range maxLinks {
		target, err := readLink(p.folder, p.name)
		if err == unix.EINVAL || err == unix.ENOENT {
			return p, nil // there is no symbolic link
		}
		next := place{}
		if err == nil {
			next, err = p.openTarget(target)
		}
		p.close()
		if err != nil {
			return place{}, err
		}
		p = next
	}
	p.close()
	return place{}, unix.ELOOP
}

// openTarget returns the place that the text of a symbolic link names. The link is in the folder of p.
func (p place) openTarget(target string) (place, error) {
	above, name := ".", strings.TrimRight(target, "/")
	if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
		above, name = name[:slash+1], name[slash+1:]
	} else if name == "" {
		above, name = "/", "."
	}
	folder, err := openFolderAt(p.folder, above)
	return place{folder, name}, err
}
