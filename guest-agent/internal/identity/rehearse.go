// Under emulation the first pass through any code is slow, because it is translated. So a host lets a machine that is
// to wait for its identity rehearse the step: the same calls, on the same objects, undone at once.

package identity

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

// errIdentified is the refusal of what only a machine without identity may do.
var errIdentified = fault.New(fault.Conflict, "the machine has an identity")

// Rehearse goes through Apply and leaves no trace of the request: no identity, no address, no word of it in
// a file, no packet. The link is down afterwards. It is refused once the machine has an identity.
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
		{"network", func() error { return i.withLink(network.rehearse) }},
		{"resize", func() error { return growRoot(i.rootDevice, 0) }},
	})
	if err != nil {
		return err
	}
	rehearseFiles("", request)
	return nil
}

// keepHostname sets the name that the machine has.
func keepHostname() error {
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return os.NewSyscallError("uname", err)
	}
	return setHostname(unix.ByteSliceToString(system.Nodename[:]))
}

// rehearse configures the interface and undoes it. It is up for a moment, with an address from which nobody
// sends: nothing has anything to say on it.
func (n *network) rehearse(link *nic) error {
	var changes batch
	n.configure(&changes, link)
	var undo batch
	undo.address(unix.RTM_DELADDR, link.index, n.address)
	undo.setLink(link.index, false, link.mac, 0)
	return errors.Join(changes.send(), undo.send())
}

// rehearseFiles writes the files of an identity and puts back what was there. A file that was not there stays, empty: the
// identity to come overwrites it where it lies, which costs far less than making it. Secrets stay deleted: that identity
// would delete them too. Like there, an odd image or a full disk is no reason to fail.
func rehearseFiles(root string, request *Request) {
	var before [len(identityFiles)][]byte
	for i, file := range identityFiles {
		before[i], _ = os.ReadFile(root + file.path)
	}
	_ = writeFiles(root, request)
	for i, file := range identityFiles {
		_, _ = overwrite(root+file.path, string(before[i]), uint32(file.mode))
	}
}
