package files

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxDepth = 64   // how far below its folder a list goes
	maxLimit = 1000 // entries of a page
	// maxPage is the size of a page from which no further entry is added, in bytes of JSON.
	maxPage = 512 << 10
	// entryCost is how many bytes of JSON an entry needs at most besides its texts.
	entryCost = 256
	// nameCost is how many bytes of JSON a byte of the name of a user or group needs at most.
	nameCost = 6
	// maxAfter is the length of the longest path that a list can have, in bytes. It is longer than paths of requests.
	maxAfter = maxPath + maxDepth*(maxName+1)
)

type listRequest struct {
	Path  Path  `json:"path"`
	Depth int   `json:"depth"`
	After Bytes `json:"after"`
	Limit int   `json:"limit"`
}

// parseList reads the parameters of files.list. It returns the names that lead from the folder to the last entry of the
// page before, none for the first page.
func parseList(params []byte) (request listRequest, after []string, err error) {
	request = listRequest{Depth: 1, Limit: maxLimit}
	if err = decode(params, &request); err != nil {
		return request, nil, err
	}
	switch {
	case request.Path == "":
		return request, nil, request.Path.mustBe()
	case request.Depth < 1 || request.Depth > maxDepth:
		return request, nil, invalid("depth is not within 1 and 64")
	case request.Limit < 1 || request.Limit > maxLimit:
		return request, nil, invalid("limit is not within 1 and 1000")
	case request.After == "":
		return request, nil, nil
	case len(request.After) > maxAfter:
		return request, nil, invalid("after is too long")
	}
	last, err := parsePath(string(request.After))
	if err != nil {
		return request, nil, err
	}
	above := strings.TrimSuffix(string(request.Path), "/") + "/"
	below, isBelow := strings.CutPrefix(string(last), above)
	if !isBelow || below == "" {
		return request, nil, invalid("after is not below path")
	}
	after = strings.Split(below, "/")
	if slices.Contains(after, "..") {
		return request, nil, invalid("after has ..")
	}
	return request, after, nil
}

// listing is one page while it is made.
type listing struct {
	names names
	limit int
	depth int
	size  int // bytes of JSON, at most

	Entries []Entry `json:"entries"`
	More    bool    `json:"more"`
}

// errPageFull ends a listing, because a further entry was found.
var errPageFull = errors.New("the page is full")

// list answers files.list. Each folder is followed by its contents, and the names in a folder are sorted by their
// bytes. A page begins after the last path of the page before, so entries may appear and disappear between two
// requests.
func (f *Files) list(ctx context.Context, params []byte) (any, error) {
	request, after, err := parseList(params)
	if err != nil {
		return nil, err
	}
	folder, err := openAt(unix.AT_FDCWD, string(request.Path), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, problem(request.Path, err)
	}
	defer unix.Close(folder)
	page := &listing{names: names{root: f.root}, limit: request.Limit, depth: request.Depth, Entries: []Entry{}}
	err = page.walk(ctx, folder, request.Path, 1, after)
	if err == errPageFull {
		page.More, err = true, nil
	}
	return page, problem(request.Path, err)
}

// walk adds the entries of an open folder that come after the position, which is a path below the folder.
func (l *listing) walk(ctx context.Context, folder int, path Path, depth int, after []string) error {
	from, isDone := "", false
	if len(after) > 0 {
		from = after[0]
		if err := l.descend(ctx, folder, from, path, depth, after[1:]); err != nil {
			return err
		}
	}
	for !isDone {
		found, err := smallest(folder, from, l.limit-len(l.Entries)+1)
		if err != nil {
			return err
		}
		isDone = len(found) <= l.limit-len(l.Entries)
		for _, name := range found {
			if err := ctx.Err(); err != nil {
				return err
			}
			from = name
			isFolder, err := l.add(folder, name, path.join(name))
			if err != nil {
				return err
			}
			if isFolder {
				if err := l.descend(ctx, folder, name, path, depth, nil); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// descend walks through a folder below an open one. It ignores a folder that is gone or cannot be read.
func (l *listing) descend(ctx context.Context, above int, name string, path Path, depth int, after []string) error {
	if depth == l.depth {
		return nil
	}
	folder, err := openToRead(above, name)
	if err != nil {
		return nil
	}
	defer unix.Close(folder)
	err = l.walk(ctx, folder, path.join(name), depth+1, after)
	if errors.As(err, new(unix.Errno)) {
		return nil
	}
	return err
}

// add adds the entry of a name to the page. It ignores one that has just been removed.
func (l *listing) add(folder int, name string, path Path) (isFolder bool, err error) {
	entry, err := l.names.entryAt(folder, name, path)
	if err != nil {
		return false, nil
	}
	l.size += entryCost + nameCost*(len(entry.User)+len(entry.Group)) + encodedLen(string(path)) + encodedLen(string(entry.Target))
	if len(l.Entries) == l.limit || (l.size > maxPage && len(l.Entries) > 0) {
		return false, errPageFull
	}
	l.Entries = append(l.Entries, entry)
	return entry.Type == typeDirectory, nil
}

// smallest returns the first names of a folder in the order of their bytes, at most count, that come after from. It needs
// memory for few names, also in a folder with millions.
func smallest(folder int, from string, count int) ([]string, error) {
	room := 2*count + 64
	var found []string
	err := readNames(folder, func(name string) error {
		if name <= from {
			return nil
		}
		if found = append(found, name); len(found) == room {
			slices.Sort(found)
			found = found[:count]
		}
		return nil
	})
	slices.Sort(found)
	return found[:min(count, len(found))], err
}
