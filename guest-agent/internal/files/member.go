package files

import (
	"archive/tar"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// refusal says why an entry of an archive is not unpacked. The other entries are still unpacked.
type refusal string

func (r refusal) Error() string { return string(r) }

// member is a checked entry of an archive.
type member struct {
	header *tar.Header
	above  string // the parent folder of the entry, relative to the folder to unpack into; "." is that folder
	name   string
	target string // of a hard link: the other name, below the folder; of a symbolic link: its text
	owner  owner
}

// checkMember checks an entry of an archive, whose maker may be hostile. It returns nil and no error for an entry that
// needs no work: the folder itself, and information for the whole archive. A given owner replaces the entry's owner.
func checkMember(header *tar.Header, who *owner) (*member, error) {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil, nil
	}
	full, err := cleanName(header.Name)
	if err != nil {
		return nil, err
	}
	if full == "." && header.Typeflag == tar.TypeDir {
		return nil, nil
	}
	if full == "." {
		return nil, refusal("it has no name")
	}
	above, name := path.Split(full)
	m := &member{header: header, above: path.Clean(above), name: name, target: header.Linkname}
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeDir:
	case tar.TypeSymlink:
		err = checkSymlink(m.above, header.Linkname)
	case tar.TypeLink:
		m.target, err = cleanName(header.Linkname)
	case tar.TypeChar, tar.TypeBlock:
		err = refusal("it is a device")
	case tar.TypeFifo:
		err = refusal("it is a pipe")
	default:
		err = refusal("it is no file, folder or link")
	}
	if err != nil {
		return nil, err
	}
	if who != nil {
		m.owner = *who
		return m, nil
	}
	m.owner = owner{header.Uid, header.Gid}
	return m, checkIDs(header.Uid, header.Gid)
}

// maxID is the largest uid and gid. The number after it means "no change" to the kernel.
const maxID = 1<<32 - 2

func checkIDs(ids ...int) error {
	for _, id := range ids {
		if id < 0 || id > maxID {
			return refusal("its owner is out of range")
		}
	}
	return nil
}

// cleanName returns a name of an archive without empty parts and ".". It is "." if nothing is left. A name with the
// part ".." is refused, even if it would not lead out of the folder as a whole.
func cleanName(name string) (string, error) {
	if strings.HasPrefix(name, "/") {
		return "", refusal("its name is absolute")
	}
	if len(name) > maxPath {
		return "", refusal("its name has more than 4096 bytes")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", refusal("its name has ..")
		}
		if len(part) > maxName {
			return "", refusal("a part of its name has more than 255 bytes")
		}
	}
	return path.Clean(name), nil
}

// checkSymlink checks the target of a symbolic link in the folder above. It looks only at the text of the target. If
// other links on the way lead out of the folder, openBeneath refuses to unpack an entry through them.
func checkSymlink(above, target string) error {
	switch {
	case target == "":
		return refusal("the link has no target")
	case strings.HasPrefix(target, "/"):
		return refusal("the link is absolute")
	case len(target) >= maxPath:
		return refusal("the link is too long")
	}
	if end := path.Join(above, target); end == ".." || strings.HasPrefix(end, "../") {
		return refusal("the link leads out of the folder")
	}
	return nil
}

// times returns the modification time of the entry, for the kernel.
func (m *member) times() []unix.Timespec {
	modified := unix.Timespec{Sec: m.header.ModTime.Unix(), Nsec: int64(m.header.ModTime.Nanosecond())}
	return []unix.Timespec{modified, modified}
}
