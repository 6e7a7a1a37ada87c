package files

import (
	"context"
	"io"
	"strconv"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/calls"
)

// maxUnsized is how many bytes of a file without a size of its own are read, such as one of /proc.
const maxUnsized = 64 << 20

type readRequest struct {
	Path   Path   `json:"path"`
	Start  int64  `json:"start"` // negative: that many bytes before the end
	End    *int64 `json:"end"`   // the last byte
	IfEtag string `json:"if_etag"`
}

// readHead is the head of files.read.
type readHead struct {
	Entry  Entry  `json:"entry"`
	Start  int64  `json:"start"`
	Length *int64 `json:"length"` // nil: up to the end, which nobody knows yet
	Etag   string `json:"etag"`
}

// read serves files.read: it sends a file, or a part of it. It opens nothing but ordinary files, because to open a
// device or a pipe can block or have effects.
func (f *Files) read(_ context.Context, params []byte, open func(any) (calls.Conn, error)) (any, error) {
	var request readRequest
	if err := decode(params, &request); err != nil {
		return nil, err
	}
	if err := request.Path.mustBe(); err != nil {
		return nil, err
	}
	file, info, err := openFile(request.Path)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	defer unix.Close(file)
	head, err := f.headOf(&request, file, info)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	conn, err := open(head)
	if err != nil {
		return nil, err
	}
	if head.Length == nil {
		err = sendUnsized(conn, file, &request)
	} else {
		err = sendPart(conn, file, head.Start, *head.Length, request.Path)
	}
	return nothing{}, problem(request.Path, err)
}

// openFile opens an ordinary file to read. Symbolic links are followed.
func openFile(path Path) (int, *unix.Stat_t, error) {
	found, err := openAt(unix.AT_FDCWD, string(path), unix.O_PATH)
	if err != nil {
		return -1, nil, err
	}
	defer unix.Close(found)
	info := new(unix.Stat_t)
	if err := unix.Fstat(found, info); err != nil {
		return -1, nil, err
	}
	switch typeOf(info) {
	case typeDirectory:
		return -1, nil, unix.EISDIR
	case typeOther:
		return -1, nil, conflict("it is a device, pipe or socket, which has no content to read", path)
	}
	file, err := reopen(found)
	return file, info, err
}

// reopen opens the file of a descriptor made with O_PATH for reading. Files such as /proc/kmsg would block without
// O_NONBLOCK.
func reopen(found int) (int, error) {
	return openAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(found), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
}

// etagOf returns a text that differs after each change of the file, unless the file system gives both versions the same
// times and size.
func etagOf(info *unix.Stat_t) string {
	hex := func(n int64) string { return strconv.FormatUint(uint64(n), 16) }
	return hex(int64(info.Ino)) + "-" + hex(info.Size) + "-" + hex(unix.TimespecToNsec(info.Mtim)) + "-" + hex(unix.TimespecToNsec(info.Ctim))
}

func (f *Files) headOf(request *readRequest, file int, info *unix.Stat_t) (*readHead, error) {
	head := &readHead{Entry: f.openEntry(request.Path, info), Start: request.Start, Etag: etagOf(info)}
	if request.IfEtag != "" && request.IfEtag != head.Etag {
		return nil, conflict("the file has changed: its etag is "+head.Etag, request.Path)
	}
	if request.End != nil && (*request.End < 0 || request.Start < 0) {
		return nil, invalid("end is negative, or start is negative and there is an end")
	}
	isOfKernel, err := isOfKernel(file)
	if err != nil {
		return nil, err
	}
	if isOfKernel {
		if request.Start < 0 {
			return nil, conflict("the size of the file is not known, so no part before its end can be read", request.Path)
		}
		return head, nil
	}
	if request.Start < 0 {
		head.Start = max(0, info.Size+request.Start)
	}
	end := info.Size
	if request.End != nil && *request.End < end {
		end = *request.End + 1
	}
	length := max(0, end-head.Start)
	head.Length = &length
	return head, nil
}

// sendPart sends exactly length bytes from the offset start on.
func sendPart(to io.Writer, file int, start, length int64, path Path) error {
	space := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(space)
	for length > 0 {
		n, err := again(func() (int, error) { return unix.Pread(file, space[:min(length, bufferSize)], start) })
		if err != nil {
			return err
		}
		if n == 0 {
			return conflict("the file became shorter while it was read", path)
		}
		if _, err := to.Write(space[:n]); err != nil {
			return err
		}
		start += int64(n)
		length -= int64(n)
	}
	return nil
}

// sendUnsized sends a file of the kernel, up to its end or to the last byte that was asked for.
func sendUnsized(to io.Writer, file int, request *readRequest) error {
	if request.Start > 0 {
		if _, err := unix.Seek(file, request.Start, unix.SEEK_SET); err != nil {
			return err
		}
	}
	left := int64(maxUnsized)
	isLimited := request.End != nil && *request.End-request.Start < left
	if isLimited {
		left = max(0, *request.End-request.Start+1)
	}
	space := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(space)
	for left > 0 || !isLimited {
		n, err := again(func() (int, error) { return unix.Read(file, space[:]) })
		if n == 0 || err == unix.EAGAIN {
			return nil
		}
		if err != nil {
			return err
		}
		if int64(n) > left && !isLimited {
			return conflict("the file has no size of its own, and is longer than 64 MiB", request.Path)
		}
		n = int(min(int64(n), left))
		if _, err := to.Write(space[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}
