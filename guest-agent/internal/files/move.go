package files

import (
	"context"

	"golang.org/x/sys/unix"
)

// move answers files.move: it renames a file, folder or symbolic link. With overwrite it replaces a file, or an empty
// folder by a folder. Nobody sees a moment without the new path.
func (f *Files) move(ctx context.Context, params []byte) (any, error) {
	var request struct {
		From      Path `json:"from"`
		To        Path `json:"to"`
		Overwrite bool `json:"overwrite"`
	}
	if err := decode(params, &request); err != nil {
		return nil, err
	}
	for _, path := range [...]Path{request.From, request.To} {
		if err := path.mustName(); err != nil {
			return nil, err
		}
	}
	from, err := openPlace(request.From)
	if err != nil {
		return nil, problem(request.From, err)
	}
	defer from.close()
	if _, err := statAt(from.folder, from.name); err != nil {
		return nil, problem(request.From, err)
	}
	to, err := openPlace(request.To)
	if err != nil {
		return nil, problem(request.To, err)
	}
	defer to.close()
	flags := uint(unix.RENAME_NOREPLACE)
	if request.Overwrite {
		flags = 0
	}
	err = f.changeNames(ctx, to.folder, func() error { return unix.Renameat2(from.folder, from.name, to.folder, to.name, flags) })
	if err == unix.EINVAL {
		return nil, conflict("a folder cannot be moved into itself", request.To)
	}
	if err != nil {
		return nil, problem(request.To, err)
	}
	entry, err := (&names{root: f.root}).entryAt(to.folder, to.name, request.To)
	return entry, problem(request.To, err)
}
