// Package files serves the files of the machine to the host: entries, lists, contents, archives and watches. It works as
// root on any path of the machine. Programs of the machine may change everything meanwhile, so the package holds folders
// by their descriptors and opens nothing that could block, such as a pipe. What writes waits while the root file system
// is frozen; only single steps enter the gate, so that a long upload does not hold up a freeze.
package files

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/process"
)

// Files serves the calls and streams whose names begin with "files.". The README of the guest agent describes each.
type Files struct {
	gate *freeze.Gate
	root string // the directory above etc/passwd; empty, except in tests

	leftovers   leftovers
	temporaries temporaries
	naming      naming
	watchers    atomic.Int32 // how many files.watch run
}

// New returns the files of the machine. The gate is shut while the root file system is frozen.
func New(gate *freeze.Gate) *Files { return &Files{gate: gate} }

// Calls returns the calls by their names.
func (f *Files) Calls() map[string]calls.Call {
	return map[string]calls.Call{
		"files.entry":  f.entry,
		"files.list":   f.list,
		"files.remove": f.remove,
		"files.mkdir":  f.mkdir,
		"files.move":   f.move,
	}
}

// Streams returns the streams by their names.
func (f *Files) Streams() map[string]calls.Stream {
	return map[string]calls.Stream{
		"files.read":    f.read,
		"files.write":   f.write,
		"files.archive": f.archive,
		"files.unpack":  f.unpack,
		"files.watch":   f.watch,
	}
}

// Close discards all uploads that are not finished, and refuses new ones. It is called before a power-off, because a file
// that is open for writing keeps its file system from being unmounted or made read-only.
func (f *Files) Close() {
	for _, t := range f.temporaries.close() {
		t.discard()
	}
}

// nothing is an answer without fields.
type nothing struct{}

// decode reads the parameters of a request. It does not check that the request has a path; see Path.mustBe.
func decode(params []byte, into any) error {
	err := json.Unmarshal(params, into)
	known := new(fault.Error)
	if err == nil || errors.As(err, &known) {
		return err
	}
	return invalid("the parameters are not as described: " + err.Error())
}

func invalid(detail string) error { return fault.New(fault.Validation, detail) }

// owner is the user of the machine that new files belong to.
type owner struct{ uid, gid int }

// findOwner looks up a user of the machine by name or uid. Without a user it returns nil.
func (f *Files) findOwner(user *string) (*owner, error) {
	if user == nil || *user == "" {
		return nil, nil
	}
	account, err := process.FindAccount(f.root, *user)
	if err != nil {
		return nil, err
	}
	return &owner{int(account.UID), int(account.GID)}, nil
}

// maxMode is the largest value of permission bits, with those for set-uid, set-gid and the sticky bit.
const maxMode = 0o7777

// modeOr returns the mode of a request, or another if the request has none.
func modeOr(mode *uint32, other uint32) (uint32, error) {
	switch {
	case mode == nil:
		return other, nil
	case *mode > maxMode:
		return 0, invalid("mode is over 07777")
	}
	return *mode, nil
}

// change runs one step that writes to a file system. It first waits until the root file system is not frozen.
func (f *Files) change(ctx context.Context, step func() error) error {
	if err := f.gate.EnterOpen(ctx); err != nil {
		return err
	}
	defer f.gate.Leave()
	return step()
}

// bufferSize is how many bytes one step of a stream moves at most.
const bufferSize = 64 << 10

// buffers is a pool, so that only streams that move bytes at this moment hold memory for them.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// again repeats a system call that a signal has interrupted. The Go runtime sends itself signals.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
