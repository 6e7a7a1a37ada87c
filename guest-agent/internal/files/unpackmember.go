package files

import (
	"archive/tar"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// maxTries is how often a lookup is repeated when the kernel cannot tell, because somebody renames folders, whether it
// stayed in the folder.
const maxTries = 100

// openBeneath opens a folder below the folder to unpack into. The kernel ensures that no symbolic link or other part of
// the path leads out. Links that stay inside are followed, as /bin in many images.
func (u *unpacking) openBeneath(name string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for try := 1; ; try++ {
		folder, err := again(func() (int, error) { return unix.Openat2(u.root, name, how) })
		switch {
		case err == unix.EXDEV:
			return -1, refusal("a link in its name leads out of the folder")
		case err == unix.EAGAIN && try < maxTries:
		default:
			return folder, err
		}
	}
}

// openAbove opens the folder that an entry goes into. It makes the folders of that path that do not exist.
func (u *unpacking) openAbove(name string) (int, error) {
	folder, err := u.openBeneath(name)
	if err != unix.ENOENT || name == "." {
		return folder, err
	}
	above, last := ".", name
	if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
		above, last = name[:slash], name[slash+1:]
	}
	parent, err := u.openAbove(above)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	if _, err := u.files.makeFolder(u.ctx, place{parent, last}, newFolderMode, u.owner); err != nil {
		return -1, err
	}
	return u.openBeneath(name)
}

// put unpacks one entry.
func (u *unpacking) put(m *member, content io.Reader) error {
	above, err := u.openAbove(m.above)
	if err != nil {
		return err
	}
	at := place{above, m.name}
	defer at.close()
	if m.header.Typeflag == tar.TypeDir {
		return u.putFolder(at, m)
	}
	if _, err := existing(at, Path(m.name)); err == unix.EISDIR {
		return refusal("a folder is there")
	} else if ignore(unix.ENOENT, err) != nil {
		return refusal("a device, pipe or socket is there")
	}
	switch m.header.Typeflag {
	case tar.TypeSymlink:
		return u.putNamed(at, func(name string) error { return putSymlink(place{at.folder, name}, m) })
	case tar.TypeLink:
		return u.putLink(at, m)
	}
	return u.putFile(at, m, content)
}

// putFolder makes a folder. A folder that already exists is not changed.
func (u *unpacking) putFolder(at place, m *member) error {
	created, err := u.files.makeFolder(u.ctx, at, uint32(m.header.Mode&maxMode), &m.owner)
	if created {
		u.times = append(u.times, folderTime{m.above, m.name, m.times()})
	}
	if err == unix.EEXIST {
		return refusal("something that is no folder is there")
	}
	return err
}

func (u *unpacking) putFile(at place, m *member, content io.Reader) error {
	file, err := u.files.newTemporary(u.ctx, at.folder)
	if err != nil {
		return err
	}
	defer file.discard()
	if err := file.receive(u.ctx, content); err != nil {
		if _, isKernels := err.(unix.Errno); isKernels || u.ctx.Err() != nil || err == errPoweringOff {
			return err
		}
		return errArchive{err}
	}
	err = file.change(u.ctx, func() error {
		if err := own(file.file, uint32(m.header.Mode&maxMode), &m.owner); err != nil {
			return err
		}
		return unix.UtimesNanoAt(file.file, "", m.times(), unix.AT_EMPTY_PATH)
	})
	if err != nil {
		return err
	}
	return file.place(u.ctx, at.name, false, unchecked)
}

// putNamed makes a link, which needs a name from the start. If the name of the place is free, putNamed uses it. If the
// name is taken, putNamed makes the link under a temporary name, and renames the link to replace the old entry.
func (u *unpacking) putNamed(at place, make func(name string) error) error {
	return u.files.changeNames(u.ctx, at.folder, func() error {
		err := make(at.name)
		if err != unix.EEXIST {
			return err
		}
		name := u.files.leftovers.newName()
		defer u.files.leftovers.drop(name)
		if err := make(name); err != nil {
			return err
		}
		err = unix.Renameat(at.folder, name, at.folder, at.name)
		_ = unix.Unlinkat(at.folder, name, 0) // it is still there after an error, and if both are the same file
		return err
	})
}

func putSymlink(at place, m *member) error {
	if err := unix.Symlinkat(m.target, at.folder, at.name); err != nil {
		return err
	}
	if err := unix.Fchownat(at.folder, at.name, m.owner.uid, m.owner.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.UtimesNanoAt(at.folder, at.name, m.times(), unix.AT_SYMLINK_NOFOLLOW)
}

// putLink makes a hard link to an entry that was unpacked before, or to another file below the folder.
func (u *unpacking) putLink(at place, m *member) error {
	above, name := ".", m.target
	if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
		above, name = name[:slash], name[slash+1:]
	}
	folder, err := u.openBeneath(above)
	if err == unix.ENOENT {
		return refusal("what it is a link to is missing")
	}
	if err != nil {
		return err
	}
	to := place{folder, name}
	defer to.close()
	info, err := statAt(to.folder, to.name)
	if err == unix.ENOENT {
		return refusal("what it is a link to is missing")
	}
	if err != nil {
		return err
	}
	if kind := typeOf(&info); kind != typeFile && kind != typeSymlink {
		return refusal("it is a link to something that is no file")
	}
	return u.putNamed(at, func(name string) error { return unix.Linkat(to.folder, to.name, at.folder, name, 0) })
}
