// A clone that waits in the host's pool gets what its machine will need anyway: randomness, an address and the name
// servers. The machine that takes the clone gets this lease too, so its identity step has less to do.

package identity

import (
	"slices"
	"time"

	"sandbar/guest-agent/internal/console"
)

// lease holds the network settings that the last lease set.
type lease struct {
	address, gateway, mac string
	mtu                   int
	dns                   []string
}

// covers reports whether the machine has the network settings of the request already, because a lease has set them. l is
// nil on a machine that had no lease.
func (l *lease) covers(request *Request) bool {
	return l != nil && l.address == request.Address && l.gateway == request.Gateway && l.mac == request.MAC &&
		l.mtu == request.MTU && slices.Equal(l.dns, request.DNS)
}

// Lease gives a machine without an identity its randomness, clock and network settings. The request's machine id and
// hostname are only checked. A later lease replaces the network settings and adds new randomness. The error is a
// conflict if the machine has an identity.
func (i *Identity) Lease(request *Request) error {
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
		{"network", func() error { return i.withLink(i.networkStep(request, network)) }},
	})
	if err != nil {
		return err
	}
	i.lease = &lease{request.Address, request.Gateway, request.MAC, request.MTU, slices.Clone(request.DNS)}
	if err := setFile(resolvPath, resolvConf(request.DNS), 0o644); err != nil {
		console.Log("lease: ", err.Error()) // the identity step tries again
	}
	return nil
}
