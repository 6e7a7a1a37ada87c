// Warms up the identity step. Under emulation the first run of any code is slow, because QEMU translates it. So before a
// template is saved, the host lets its guest make the same calls on the same objects and undo them at once.

package identity

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

// errIdentified refuses a warm-up on a machine that has an identity.
var errIdentified = fault.New(fault.Conflict, "the machine has an identity")

// WarmUp runs the steps of Apply and undoes them. Afterwards the machine has no identity and no address, only files that
// were empty or missing have values of the request, no packet was sent, and the link is down. The error is a conflict if
// the machine has an identity.
func (i *Identity) WarmUp(request *Request) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.MachineID() != "" {
		return errIdentified
	}
	network, err := request.network()
	if err != nil {
		return err
	}
	if i.lease != nil {
		i.lease = new(lease) // matches no request, because the warm-up takes the address away
	}
	err = perform([]step{
		{"entropy", func() error { return mixEntropy(request.Entropy) }},
		{"clock", func() error { return setClock(time.UnixMilli(request.TimeUnixMs)) }},
		{"hostname", keepHostname},
		{"network", func() error { return i.withLink(network.warmUp) }},
		{"resize", i.warmUpResize},
	})
	if err != nil {
		return err
	}
	if failures := warmUpFiles("", request, i.isClean); len(failures) == 0 && !i.AwaitsDisk() {
		i.isClean = true
	}
	return nil
}

// warmUpResize runs the resize step. It does nothing if the root disk is not mounted.
func (i *Identity) warmUpResize() error {
	device := i.system.RootDevice()
	if device == "" {
		return nil
	}
	size, err := growRoot(device, 0)
	if err == nil {
		i.rootBytes = size
	}
	return err
}

// keepHostname sets the host name to its current value, to warm up the system call.
func keepHostname() error {
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return os.NewSyscallError("uname", err)
	}
	return setHostname(unix.ByteSliceToString(system.Nodename[:]))
}

// warmUp configures the interface and undoes that. The link is up for a moment, but sends nothing, because no program
// uses the network yet.
func (n *network) warmUp(link *nic) error {
	var changes batch
	n.configure(&changes, link)
	var undo batch
	undo.address(unix.RTM_DELADDR, link.index, n.address)
	undo.setLink(link.index, false, link.mac, 0)
	return errors.Join(changes.send(), undo.send())
}

// warmUpFiles writes the files of an identity and restores their old content. A file that was empty or missing keeps the
// values of the warm-up: the real identity overwrites them in place, which is much faster than to create the file and to
// find room for it on the disk. Unless isClean, it deletes all secrets: the files cannot tell whose secrets they are,
// because they may have the values of an earlier warm-up. It returns the errors.
func warmUpFiles(root string, request *Request, isClean bool) (failures []error) {
	var before [len(identityFiles)][]byte
	for i, file := range identityFiles {
		before[i], _ = os.ReadFile(root + file.path)
	}
	if !isClean {
		failures = forgetSecrets(root)
	}
	failures = append(failures, writeFiles(root, request, true)...)
	for i, file := range identityFiles {
		if len(before[i]) > 0 {
			_, _ = overwrite(root+file.path, string(before[i]), uint32(file.mode))
		}
	}
	return failures
}
