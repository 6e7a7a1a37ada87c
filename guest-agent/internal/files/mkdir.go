package files

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	newFolderMode = 0o755
	newFileMode   = 0o644
)

// mkdir answers files.mkdir. It is no error if the folder exists.
func (f *Files) mkdir(ctx context.Context, params []byte) (any, error) {
	var request struct {
		Path    Path    `json:"path"`
		Mode    *uint32 `json:"mode"`
		User    *string `json:"user"`
		Parents bool    `json:"parents"`
	}
	if err := decode(params, &request); err != nil {
		return nil, err
	}
	if err := request.Path.mustBe(); err != nil {
		return nil, err
	}
	mode, err := modeOr(request.Mode, newFolderMode)
	if err != nil {
		return nil, err
	}
	who, err := f.findOwner(request.User)
	if err != nil {
		return nil, err
	}
	at, err := f.openPlaceFor(ctx, request.Path, request.Parents, who)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	defer at.close()
	created, err := f.makeFolder(ctx, at, mode, who)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	entry, err := (&names{root: f.root}).entryAt(at.folder, at.name, request.Path)
	return struct {
		Entry   Entry `json:"entry"`
		Created bool  `json:"created"`
	}{entry, created}, problem(request.Path, err)
}

// makeFolder makes a folder, and reports false if it exists already. A symbolic link to a folder counts as one.
func (f *Files) makeFolder(ctx context.Context, at place, mode uint32, who *owner) (created bool, err error) {
	err = f.change(ctx, func() error {
		if err := unix.Mkdirat(at.folder, at.name, mode&0o700); err != nil {
			return err
		}
		folder, err := openToRead(at.folder, at.name)
		if err != nil {
			return err
		}
		defer unix.Close(folder)
		return own(folder, mode, who)
	})
	if err != unix.EEXIST {
		return err == nil, err
	}
	existing, err := openFolderAt(at.folder, at.name)
	switch err {
	case nil:
		return false, unix.Close(existing)
	case unix.ENOTDIR, unix.ENOENT: // a file, or a symbolic link that leads nowhere
		return false, unix.EEXIST
	}
	return false, err
}

// own sets the owner, if there is one, and then the mode, because a change of the owner clears bits of the mode.
func own(fd int, mode uint32, who *owner) error {
	if who != nil {
		if err := unix.Fchown(fd, who.uid, who.gid); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, mode)
}

// openPlaceFor is like openPlace. With parents it also makes the folders above that are missing, for the owner.
func (f *Files) openPlaceFor(ctx context.Context, path Path, parents bool, who *owner) (place, error) {
	at, err := openPlace(path)
	if err != unix.ENOENT || !parents {
		return at, err
	}
	above, name := path.split()
	folder, err := openFolder("/")
	for part := range strings.SplitSeq(strings.Trim(string(above), "/"), "/") {
		if err != nil {
			return place{}, err
		}
		var next int
		next, err = openFolderAt(folder, part)
		if err == unix.ENOENT {
			if _, err = f.makeFolder(ctx, place{folder, part}, newFolderMode, who); err == nil {
				next, err = openFolderAt(folder, part)
			}
		}
		_ = unix.Close(folder)
		folder = next
	}
	return place{folder, name}, err
}
