// Under emulation the first pass through any code is slow, because it is translated. So a host lets a machine that is
// to wait for its identity rehearse the step: the same calls, on the same objects, undone at once.

package identity

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

// errIdentified is the refusal of what only a machine without identity may do.
var errIdentified = fault.New(fault.Conflict, "the machine has an identity")

// Rehearse goes through Apply and leaves no trace of the request: no identity, no address, no file, no packet. The
// link stays down. It is refused once the machine has an identity.
func (i *Identity) Rehearse(request *Request) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.MachineID() != "" {
		return errIdentified
	}
	network, err := request.network()
	if err != nil {
		return err
	}
	err = perform([]step{
		{"entropy", func() error { return mixEntropy(request.Entropy) }},
		{"clock", func() error { return setClock(time.UnixMilli(request.TimeUnixMs)) }},
		{"hostname", keepHostname},
		{"network", network.rehearse},
		{"resize", func() error { return growRoot(i.rootDevice) }},
		{"files", func() error { return rehearseFiles(request) }},
	})
	return err
}

// keepHostname sets the name that the machine has.
func keepHostname() error {
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return os.NewSyscallError("uname", err)
	}
	return setHostname(unix.ByteSliceToString(system.Nodename[:]))
}

// rehearseFiles writes the files of an identity below a folder of its own, on the file system that the real ones are
// on, and removes them. A disk that takes none is no reason to fail: Apply would go on too.
func rehearseFiles(request *Request) error {
	if err := os.MkdirAll(filepath.Dir(recordPath), 0o755); err != nil {
		return nil
	}
	root, err := os.MkdirTemp(filepath.Dir(recordPath), "rehearsal-")
	if err != nil {
		return nil
	}
	_ = writeFiles(root, request)
	return errors.Join(os.RemoveAll(root))
}
