package files

import (
	"context"
	"io"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/calls"
)

type writeRequest struct {
	Path      Path    `json:"path"`
	Mode      *uint32 `json:"mode"`
	User      *string `json:"user"`
	Parents   bool    `json:"parents"`
	Exclusive bool    `json:"exclusive"`
	IfEtag    string  `json:"if_etag"`
}

// writeHead is the head of files.write. It repeats the condition, so that the host notices an older agent, which would
// ignore it.
type writeHead struct {
	IfEtag string `json:"if_etag,omitempty"`
}

// written is the result of files.write.
type written struct {
	Entry Entry `json:"entry"`
}

// write serves files.write: the host sends the content of a file. The file appears when all has arrived and is on the
// disk. If anything fails before, what was at the path stays as it was.
func (f *Files) write(ctx context.Context, params []byte, open func(any) (calls.Conn, error)) (any, error) {
	var request writeRequest
	if err := decode(params, &request); err != nil {
		return nil, err
	}
	if err := request.Path.mustName(); err != nil {
		return nil, err
	}
	if _, err := modeOr(request.Mode, 0); err != nil {
		return nil, err
	}
	who, err := f.findOwner(request.User)
	if err != nil {
		return nil, err
	}
	at, err := f.openTarget(ctx, &request, who)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	defer at.close()
	file, err := f.newTemporary(ctx, at.folder)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	defer file.discard()
	conn, err := open(writeHead{request.IfEtag})
	if err != nil {
		return nil, err
	}
	if err := file.receive(ctx, conn); err != nil {
		return nil, problem(request.Path, err)
	}
	info, err := f.finish(ctx, file, at, &request, who)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	return written{f.openEntry(request.Path, info)}, nil
}

// openTarget returns the place where the file will be: that of the path, or where symbolic links there lead to.
func (f *Files) openTarget(ctx context.Context, request *writeRequest, who *owner) (place, error) {
	at, err := f.openPlaceFor(ctx, request.Path, request.Parents, who)
	if err == nil && !request.Exclusive {
		at, err = at.follow()
	}
	if err != nil {
		return place{}, err
	}
	if err := checkTarget(at, request); err != nil {
		at.close()
		return place{}, err
	}
	return at, nil
}

// checkTarget returns an error if no file can be put at the place, so that the host learns it before it sends anything.
func checkTarget(at place, request *writeRequest) error {
	isOfKernel, err := isOfKernel(at.folder)
	if err != nil {
		return err
	}
	if isOfKernel {
		return conflict("the kernel makes the files there, so none can be replaced or added", request.Path)
	}
	info, err := existing(at, request.Path)
	if err == nil && request.Exclusive {
		return unix.EEXIST
	}
	if err := ignore(unix.ENOENT, err); err != nil {
		return err
	}
	return checkVersion(request, &info, err == nil)
}

// checkVersion returns a conflict if the host wants to replace another version of the file than the present one.
func checkVersion(request *writeRequest, info *unix.Stat_t, exists bool) error {
	switch {
	case request.IfEtag == "" || exists && request.IfEtag == etagOf(info):
		return nil
	case exists:
		return conflict("the file has changed: its etag is "+etagOf(info), request.Path)
	}
	return conflict("the file does not exist any more", request.Path)
}

// existing returns the properties of what the file would replace. The error is ENOENT if there is nothing, and a conflict
// if it is a folder, device, pipe or socket.
func existing(at place, path Path) (unix.Stat_t, error) {
	info, err := statAt(at.folder, at.name)
	if err != nil {
		return info, err
	}
	switch typeOf(&info) {
	case typeDirectory:
		return info, unix.EISDIR
	case typeOther:
		return info, conflict("it is a device, pipe or socket, which a file does not replace", path)
	}
	return info, nil
}

// receive appends all bytes of the connection.
func (t *temporary) receive(ctx context.Context, from io.Reader) error {
	space := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(space)
	for {
		n, err := from.Read(space[:])
		if n > 0 {
			if err := t.write(ctx, space[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// finish gives the file its owner, mode and name, all of them on the disk when it returns. It returns the properties of
// the file.
func (f *Files) finish(ctx context.Context, file *temporary, at place, request *writeRequest, who *owner) (*unix.Stat_t, error) {
	old, err := existing(at, request.Path)
	if err != nil && err != unix.ENOENT {
		return nil, err
	}
	mode := uint32(newFileMode)
	if err == nil && typeOf(&old) == typeFile {
		mode = old.Mode & maxMode
		if who == nil {
			who = &owner{int(old.Uid), int(old.Gid)}
		}
	}
	if request.Mode != nil {
		mode = *request.Mode
	}
	if err := file.change(ctx, func() error { return own(file.file, mode, who) }); err != nil {
		return nil, err
	}
	if err := file.sync(); err != nil {
		return nil, err
	}
	// Check again after the content has arrived. No other request changes the name between this check and the rename. A
	// program in the machine can, and that is not noticed.
	check := func() error { return checkTarget(at, request) }
	if err := file.place(ctx, at.name, request.Exclusive, check); err != nil {
		return nil, err
	}
	info := new(unix.Stat_t)
	if err := file.change(ctx, func() error { return unix.Fstat(file.file, info) }); err != nil {
		return nil, err
	}
	return info, syncFolder(at.folder)
}

// syncFolder waits until the names in a folder are on the disk.
func syncFolder(above int) error {
	folder, err := openToRead(above, ".")
	if err != nil {
		return err
	}
	defer unix.Close(folder)
	_, err = again(func() (int, error) { return 0, unix.Fsync(folder) })
	if err == unix.EINVAL {
		return nil // a file system without a disk
	}
	return err
}
