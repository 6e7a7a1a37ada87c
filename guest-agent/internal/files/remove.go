package files

import (
	"context"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/mounttable"
)

const (
	// maxLevels is how many folders below each other are handled. Each needs a descriptor.
	maxLevels = 1024
	// maxPasses is how often a folder is emptied, because programs may make files in it meanwhile.
	maxPasses = 16
)

// remove answers files.remove. A symbolic link is removed and not followed. To remove a folder with its contents, it
// opens each folder relative to the open folder above. So a program that replaces a folder by a link cannot direct the
// removal elsewhere. It never enters another mount, so it does not empty a file system that is mounted in the folder.
func (f *Files) remove(ctx context.Context, params []byte) (any, error) {
	var request struct {
		Path      Path `json:"path"`
		Recursive bool `json:"recursive"`
	}
	if err := decode(params, &request); err != nil {
		return nil, err
	}
	if err := request.Path.mustName(); err != nil {
		return nil, err
	}
	at, err := openPlace(request.Path)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	defer at.close()
	err = f.unlink(ctx, at, 0)
	if err == unix.EISDIR {
		if request.Recursive {
			err = f.removeFolder(ctx, at, request.Path)
		} else {
			err = f.unlink(ctx, at, unix.AT_REMOVEDIR)
		}
	}
	if err == unix.ENOTEMPTY && !request.Recursive {
		err = conflict("the folder is not empty, and recursive was not set", request.Path)
	}
	return nothing{}, problem(request.Path, err)
}

func (f *Files) unlink(ctx context.Context, at place, flags int) error {
	return f.changeNames(ctx, at.folder, func() error { return unix.Unlinkat(at.folder, at.name, flags) })
}

// removeFolder removes a folder with its contents. It changes nothing if anything is mounted in the folder.
func (f *Files) removeFolder(ctx context.Context, at place, path Path) error {
	if err := checkMounts(at, path); err != nil {
		return err
	}
	return f.removeTree(ctx, at, path, 0)
}

// checkMounts returns an error if the folder is a mount point or has one in it.
func checkMounts(at place, path Path) error {
	folder, err := openAt(at.folder, at.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(folder)
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(folder))
	if err != nil {
		return err
	}
	mounts, err := mounttable.Own()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		if mount.Path == real || strings.HasPrefix(mount.Path, real+"/") {
			return mounted(Path(mount.Path))
		}
	}
	return nil
}

func mounted(path Path) error {
	return conflict("a file system is mounted there; unmount it first", path)
}

// removeTree removes the folder at a place with its contents.
func (f *Files) removeTree(ctx context.Context, at place, path Path, level int) error {
	if level == maxLevels {
		return conflict("there are more than 1024 folders below each other", path)
	}
	folder, err := openWithin(at)
	switch err {
	case nil:
	case unix.EXDEV:
		return mounted(path)
	case unix.ENOENT:
		return nil
	case unix.ENOTDIR, unix.ELOOP: // a program has just replaced the folder
		return ignore(unix.ENOENT, f.unlink(ctx, at, 0))
	default:
		return problem(path, err)
	}
	defer unix.Close(folder)
	for range maxPasses {
		err = readNames(folder, func(name string) error {
			inside := place{folder, name}
			err := ignore(unix.ENOENT, f.unlink(ctx, inside, 0))
			if err == unix.EISDIR {
				return f.removeTree(ctx, inside, path.join(name), level+1)
			}
			return problem(path.join(name), err)
		})
		if ignore(unix.ENOENT, err) != nil {
			return problem(path, err)
		}
		err = ignore(unix.ENOENT, f.unlink(ctx, at, unix.AT_REMOVEDIR))
		if err != unix.ENOTEMPTY {
			return problem(path, err)
		}
	}
	return fault.New(fault.Conflict, "a program keeps making files in the folder: "+path.String())
}

// openWithin opens a folder to read its names. The error is EXDEV if something is mounted on it.
func openWithin(at place) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	}
	return again(func() (int, error) { return unix.Openat2(at.folder, at.name, how) })
}

// ignore returns nil instead of one error.
func ignore(expected unix.Errno, err error) error {
	if err == expected {
		return nil
	}
	return err
}
