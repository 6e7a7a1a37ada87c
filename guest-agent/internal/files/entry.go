package files

import (
	"context"
	"strconv"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/process"
)

// Entry describes one file, folder, symbolic link or other node.
type Entry struct {
	Path    Path   `json:"path,omitempty"`
	Type    string `json:"type"`
	Size    int64  `json:"size"`
	Mode    uint32 `json:"mode"`
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	User    string `json:"user"`
	Group   string `json:"group"`
	MtimeNs string `json:"mtime_ns"`
	Target  Bytes  `json:"target,omitempty"`
	Inode   uint64 `json:"inode"`
	Device  uint64 `json:"device"`
}

// The types of entries. A device, pipe or socket is "other".
const (
	typeFile      = "file"
	typeDirectory = "directory"
	typeSymlink   = "symlink"
	typeOther     = "other"
)

func typeOf(info *unix.Stat_t) string {
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return typeFile
	case unix.S_IFDIR:
		return typeDirectory
	case unix.S_IFLNK:
		return typeSymlink
	}
	return typeOther
}

// maxSize is the largest size that an entry shows: the largest number that every JSON parser reads exactly. A sparse file
// can be longer.
const maxSize = 1<<53 - 1

// names holds the names of users and groups during one request. It reads them when they are first needed.
type names struct {
	root          string
	users, groups map[uint32]string
}

func (n *names) entry(path Path, info *unix.Stat_t) Entry {
	if n.users == nil {
		n.users, n.groups = process.UserNames(n.root), process.GroupNames(n.root)
	}
	return Entry{
		Path:    path,
		Type:    typeOf(info),
		Size:    min(info.Size, maxSize),
		Mode:    info.Mode & maxMode,
		UID:     info.Uid,
		GID:     info.Gid,
		User:    n.users[info.Uid],
		Group:   n.groups[info.Gid],
		MtimeNs: strconv.FormatInt(unix.TimespecToNsec(info.Mtim), 10),
		Inode:   info.Ino,
		Device:  info.Dev,
	}
}

// entryAt returns the entry of a name in an open folder. It does not follow a symbolic link there.
func (n *names) entryAt(folder int, name string, path Path) (Entry, error) {
	info, err := statAt(folder, name)
	if err != nil {
		return Entry{}, err
	}
	entry := n.entry(path, &info)
	if entry.Type == typeSymlink {
		target, err := readLink(folder, name)
		if err != nil {
			return Entry{}, err
		}
		entry.Target = Bytes(target)
	}
	return entry, nil
}

// maxPathInHead is the length of the longest encoded path in the head or result of a stream, in bytes. A head or result
// may have 4 KiB in all. A longer path is left out, because the host sent it in the request and knows it.
const maxPathInHead = 3 << 10

// openEntry returns the entry of an open file, for the head or result of a stream.
func (f *Files) openEntry(path Path, info *unix.Stat_t) Entry {
	if encodedLen(string(path)) > maxPathInHead {
		path = ""
	}
	return (&names{root: f.root}).entry(path, info)
}

// entry answers files.entry.
func (f *Files) entry(_ context.Context, params []byte) (any, error) {
	var request struct {
		Path Path `json:"path"`
	}
	if err := decode(params, &request); err != nil {
		return nil, err
	}
	if err := request.Path.mustBe(); err != nil {
		return nil, err
	}
	at, err := openPlace(request.Path)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	defer at.close()
	entry, err := (&names{root: f.root}).entryAt(at.folder, at.name, request.Path)
	return entry, problem(request.Path, err)
}
