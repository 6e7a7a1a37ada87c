// A lease is an identity without a machine id: randomness, an address, a hostname and a system id. The host gives it to
// a clone that waits in its pool. A machine that takes the clone later claims the lease as its identity, so that only
// the clock has to be set.

package identity

import (
	"slices"

	"sandbar/guest-agent/internal/fault"
)

var errNoLease = fault.New(fault.Conflict, "the machine has no lease to claim")

// lease holds what the last lease has set.
type lease struct {
	address, gateway, mac string
	mtu                   int
	dns                   []string
	hostname, systemID    string
}

// hasNetworkOf reports whether the lease has set the network settings of the request. l is nil on a machine that had no
// lease.
func (l *lease) hasNetworkOf(request *Request) bool {
	return l != nil && l.address == request.Address && l.gateway == request.Gateway && l.mac == request.MAC &&
		l.mtu == request.MTU && slices.Equal(l.dns, request.DNS)
}

// hasNamesOf reports whether the lease has set the hostname and the system id of the request.
func (l *lease) hasNamesOf(request *Request) bool {
	return l != nil && l.hostname == request.Hostname && l.systemID == request.SystemID
}

// Lease gives a machine without an identity everything of the request but the machine id. A later lease replaces the
// values and adds new randomness. The error is a conflict if the machine has an identity, or no root disk yet.
func (i *Identity) Lease(request *Request) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.MachineID() != "" {
		return errIdentified
	}
	if i.AwaitsDisk() {
		return fault.New(fault.Conflict, "the machine has not mounted its root disk")
	}
	network, err := request.network()
	if err != nil {
		return err
	}
	err = perform([]step{
		{"entropy", func() error { return mixEntropy(request.Entropy) }},
		i.clockStep(request),
		{"hostname", func() error { return setHostname(request.Hostname) }},
		{"network", func() error { return i.withLink(i.networkStep(request, network)) }},
		i.resizeStep(request),
	})
	if err != nil {
		return err
	}
	i.lease = &lease{
		request.Address, request.Gateway, request.MAC, request.MTU, slices.Clone(request.DNS),
		request.Hostname, request.SystemID,
	}
	i.writeFiles(request)
	return nil
}

// ParseClaim reads the JSON of a claim and checks it. A claim has the fields machine_id, time_unix_ms and disk_bytes of
// a Request.
func ParseClaim(body []byte) (*Request, error) {
	request, err := read(body)
	if err != nil {
		return nil, invalid("the body is not a claim: " + err.Error())
	}
	if !isWord(request.MachineID) {
		return nil, errNoMachineID
	}
	if request.TimeUnixMs <= 0 {
		return nil, errNoTime
	}
	return request, nil
}

// Claim makes the lease the identity of the machine with the given id, and sets the clock. It may be repeated. The error
// is a conflict if the machine has another identity, or no lease.
func (i *Identity) Claim(request *Request) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.MachineID() != "" && i.MachineID() != request.MachineID {
		return errIdentified
	}
	if i.lease == nil || i.lease.hostname == "" {
		return errNoLease
	}
	if err := perform([]step{i.clockStep(request), i.resizeStep(request)}); err != nil {
		return err
	}
	i.begin(request)
	return nil
}
