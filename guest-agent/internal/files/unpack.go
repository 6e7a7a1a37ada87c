package files

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/fault"
)

// unpack serves files.unpack: it unpacks a tar archive from the host into a folder. An entry that would lead out of the
// folder, or that is no file, folder or link, is refused, and the others are unpacked. Each file appears whole or not at
// all. After an error, what was unpacked before it stays.
func (f *Files) unpack(ctx context.Context, params []byte, open func(any) (calls.Conn, error)) (any, error) {
	var request struct {
		Path Path    `json:"path"`
		User *string `json:"user"`
	}
	if err := decode(params, &request); err != nil {
		return nil, err
	}
	if err := request.Path.mustBe(); err != nil {
		return nil, err
	}
	who, err := f.findOwner(request.User)
	if err != nil {
		return nil, err
	}
	root, err := openAt(unix.AT_FDCWD, string(request.Path), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	defer unix.Close(root)
	conn, err := open(nothing{})
	if err != nil {
		return nil, err
	}
	u := &unpacking{files: f, ctx: ctx, root: root, owner: who}
	if err := u.all(conn); err != nil {
		return nil, problem(request.Path, err)
	}
	_, err = again(func() (int, error) { return 0, unix.Syncfs(root) })
	return u.result, problem(request.Path, err)
}

// unpacked is the result of files.unpack.
type unpacked struct {
	Entries      int       `json:"entries"`
	Refused      []refused `json:"refused"`
	RefusedCount int       `json:"refused_count"`
}

type refused struct {
	Name   Bytes  `json:"name"`
	Reason string `json:"reason"`
}

const (
	// maxRefused is how many refused entries a result lists.
	maxRefused = 20
	// maxRefusedSize is how many bytes of JSON they have at most, because the whole result may have 4 KiB.
	maxRefusedSize = 3 << 10
	// maxRefusedName is how many bytes of the name of a refused entry are listed.
	maxRefusedName = 200
)

// refuse counts a refused entry, and lists it if there is room.
func (u *unpacked) refuse(name, reason string) {
	u.RefusedCount++
	name = name[:min(len(name), maxRefusedName)]
	size := encodedLen(name) + len(reason)
	for _, listed := range u.Refused {
		size += encodedLen(string(listed.Name)) + len(listed.Reason)
	}
	const frame = len(`{"name":"","reason":""},`)
	if len(u.Refused) < maxRefused && size+frame*(len(u.Refused)+1) <= maxRefusedSize {
		u.Refused = append(u.Refused, refused{Bytes(name), reason})
	}
}

// unpacking is an archive while it is unpacked.
type unpacking struct {
	files  *Files
	ctx    context.Context
	root   int // the folder to unpack into
	owner  *owner
	times  []folderTime
	result unpacked
}

// source reads an archive from the host. It remembers when the connection broke, because that is no error of the archive.
type source struct {
	io.Reader
	broken error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.broken = err
	}
	return n, err
}

// errArchive marks an error of the archive itself.
type errArchive struct{ error }

func (u *unpacking) all(conn io.Reader) error {
	u.result.Refused = []refused{}
	from := &source{Reader: conn}
	archive := tar.NewReader(from)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = u.next(header, archive)
		} else {
			err = errArchive{err}
		}
		if from.broken != nil {
			return from.broken
		}
		if errors.As(err, new(errArchive)) {
			return fault.New(fault.Validation, "this is no whole tar archive: "+display(err.Error()))
		}
		if err != nil {
			return err
		}
	}
	u.setTimes("")
	_, err := io.Copy(io.Discard, from) // what programs add after the end of an archive
	return err
}

// next unpacks one entry, or refuses it. It returns only errors that end the unpacking.
func (u *unpacking) next(header *tar.Header, content io.Reader) error {
	m, err := checkMember(header, u.owner)
	if m == nil && err == nil {
		return nil
	}
	if err == nil {
		u.setTimes(m.above)
		err = u.put(m, content)
	}
	reason := ""
	var number unix.Errno
	switch {
	case err == nil:
		u.result.Entries++
		return nil
	case errors.As(err, new(errArchive)):
		return err
	case errors.As(err, new(refusal)):
		reason = err.Error()
	case errors.As(err, &number):
		code, text := explain(number)
		if code == fault.DiskFull || code == fault.Internal {
			return err
		}
		reason = text
	default:
		return err
	}
	u.result.refuse(header.Name, reason)
	return nil
}

// folderTime is the modification time of a folder that was made. It is set when the folder is complete, which is when an
// entry follows that is not in it.
type folderTime struct {
	above, name string
	times       []unix.Timespec
}

// setTimes sets the times of the folders that do not contain the folder called next.
func (u *unpacking) setTimes(next string) {
	for len(u.times) > 0 {
		last := u.times[len(u.times)-1]
		inside := last.name
		if last.above != "." {
			inside = last.above + "/" + last.name
		}
		if next == inside || strings.HasPrefix(next, inside+"/") {
			return
		}
		u.times = u.times[:len(u.times)-1]
		if above, err := u.openBeneath(last.above); err == nil {
			// An error does not matter: the folder has then been replaced or removed.
			_ = u.files.change(u.ctx, func() error { return unix.UtimesNanoAt(above, last.name, last.times, unix.AT_SYMLINK_NOFOLLOW) })
			_ = unix.Close(above)
		}
	}
}
