package files

import (
	"archive/tar"
	"bufio"
	"context"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/calls"
)

// archive serves files.archive: it sends a tar archive of a folder or file while it reads that. Names are below the
// folder, which has no entry of its own. Sockets, pipes and devices are left out.
func (f *Files) archive(ctx context.Context, params []byte, open func(any) (calls.Conn, error)) (any, error) {
	var request struct {
		Path Path `json:"path"`
	}
	if err := decode(params, &request); err != nil {
		return nil, err
	}
	if err := request.Path.mustBe(); err != nil {
		return nil, err
	}
	found, err := openAt(unix.AT_FDCWD, string(request.Path), unix.O_PATH)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	defer unix.Close(found)
	info, err := checkArchived(found, request.Path)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	conn, err := open(nothing{})
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriterSize(conn, bufferSize)
	a := &archiver{ctx: ctx, tar: tar.NewWriter(out), links: map[[2]uint64]string{}}
	if typeOf(info) == typeDirectory {
		err = a.addContents(found, "", request.Path, info.Dev, 0)
	} else {
		_, name := request.Path.split()
		err = a.addFile(found, name, request.Path, info)
	}
	if err == nil {
		err = a.tar.Close()
	}
	if err == nil {
		err = out.Flush()
	}
	return nothing{}, problem(request.Path, err)
}

// checkArchived returns the properties of what will be archived, or an error unless it is a folder or a file.
func checkArchived(found int, path Path) (*unix.Stat_t, error) {
	isOfKernel, err := isOfKernel(found)
	if err != nil {
		return nil, err
	}
	if isOfKernel {
		return nil, conflict("the kernel makes the files there, so they have no archive", path)
	}
	info := new(unix.Stat_t)
	if err := unix.Fstat(found, info); err != nil {
		return nil, err
	}
	if typeOf(info) == typeOther {
		return nil, conflict("it is a device, pipe or socket, which has no archive", path)
	}
	return info, nil
}

// maxLinkBytes is how many bytes of names an archiver remembers to recognize hard links. After that many bytes, a
// further file with several names is stored once for each name.
const maxLinkBytes = 8 << 20

type archiver struct {
	ctx       context.Context
	tar       *tar.Writer
	links     map[[2]uint64]string // the name in the archive of each file with several names, by device and inode
	linkBytes int
}

// addContents adds what is in a folder. prefix is the name of the folder in the archive with a slash, or empty.
func (a *archiver) addContents(found int, prefix string, path Path, device uint64, level int) error {
	if level == maxLevels {
		return conflict("there are more than 1024 folders below each other", path)
	}
	folder, err := openToRead(found, ".")
	if err != nil {
		return err
	}
	defer unix.Close(folder)
	return readNames(folder, func(name string) error {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		inside := path.join(name)
		return problem(inside, a.add(folder, name, prefix+name, inside, device, level))
	})
}

// add adds one name of a folder. It leaves out what has just been removed.
func (a *archiver) add(folder int, name, full string, path Path, device uint64, level int) error {
	found, err := openAt(folder, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return ignore(unix.ENOENT, err)
	}
	defer unix.Close(found)
	info := new(unix.Stat_t)
	if err := unix.Fstat(found, info); err != nil {
		return err
	}
	isKernels := false
	if info.Dev != device {
		if isKernels, err = isOfKernel(found); err != nil {
			return err
		}
	}
	switch kind := typeOf(info); {
	case kind == typeDirectory:
		header := headerOf(info, tar.TypeDir, full+"/")
		if err := a.tar.WriteHeader(header); err != nil || isKernels {
			return err
		}
		return ignore(unix.ENOENT, a.addContents(found, full+"/", path, info.Dev, level+1))
	case kind == typeSymlink:
		header := headerOf(info, tar.TypeSymlink, full)
		if header.Linkname, err = readLink(found, ""); err != nil {
			return err
		}
		return a.tar.WriteHeader(header)
	case kind == typeFile && !isKernels:
		return a.addFile(found, full, path, info)
	}
	return nil
}

func headerOf(info *unix.Stat_t, kind byte, name string) *tar.Header {
	return &tar.Header{
		Typeflag: kind,
		Name:     name,
		Mode:     int64(info.Mode & maxMode),
		Uid:      int(info.Uid),
		Gid:      int(info.Gid),
		ModTime:  time.Unix(info.Mtim.Unix()),
		Format:   tar.FormatPAX,
	}
}

// addFile adds a file, or a hard link to it if the archive has it under another name already.
func (a *archiver) addFile(found int, name string, path Path, info *unix.Stat_t) error {
	if info.Nlink > 1 {
		key := [2]uint64{info.Dev, info.Ino}
		if first, isKnown := a.links[key]; isKnown {
			header := headerOf(info, tar.TypeLink, name)
			header.Linkname = first
			return a.tar.WriteHeader(header)
		}
		if a.linkBytes += len(name); a.linkBytes <= maxLinkBytes {
			a.links[key] = name
		}
	}
	file, err := reopen(found)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	header := headerOf(info, tar.TypeReg, name)
	if info.Size <= bufferSize {
		return a.addShort(file, header, info.Size)
	}
	header.Size = info.Size
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	return sendPart(a.tar, file, 0, info.Size, path)
}

// addShort adds a file that fits into a buffer. It reads the file before it writes the header, so that the length is
// right also if the file becomes shorter at this moment.
func (a *archiver) addShort(file int, header *tar.Header, size int64) error {
	space := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(space)
	n, err := io.ReadFull(reader(file), space[:size])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	header.Size = int64(n)
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err = a.tar.Write(space[:n])
	return err
}

// reader reads an open file.
type reader int

func (r reader) Read(p []byte) (int, error) {
	n, err := again(func() (int, error) { return unix.Read(int(r), p) })
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}
