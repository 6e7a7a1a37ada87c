package identity

import (
	"bytes"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// network is the checked network part of a request.
type network struct {
	address *net.IPNet
	gateway net.IP           // nil: no default route
	mac     net.HardwareAddr // nil: as it is
	mtu     int              // zero: as it is
}

func (r *Request) network() (*network, error) {
	prefix, err := netip.ParsePrefix(r.Address)
	if err != nil || !prefix.Addr().Is4() {
		return nil, invalid("address is not an IPv4 address with its prefix length")
	}
	found := &network{
		address: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), 32)},
		mtu:     r.MTU,
	}
	if r.Gateway != "" {
		gateway, err := netip.ParseAddr(r.Gateway)
		if err != nil || !gateway.Is4() {
			return nil, invalid("gateway is not an IPv4 address")
		}
		found.gateway = gateway.AsSlice()
	}
	if r.MAC != "" {
		mac, err := net.ParseMAC(r.MAC)
		if err != nil || len(mac) != 6 {
			return nil, invalid("mac is not a MAC address")
		}
		found.mac = mac
	}
	if r.MTU != 0 && (r.MTU < 576 || r.MTU > 65535) {
		return nil, invalid("mtu is out of range")
	}
	return found, nil
}

// begin configures the interface of a machine that never had a network.
func (n *network) begin(link *nic) error {
	var changes batch
	n.configure(&changes, link)
	return changes.send()
}

// keep configures the interface of a machine that has a network. What is right already stays as it is, so that giving a
// machine the identity that it has cuts no connection.
func (n *network) keep(link *nic) error {
	addresses, err := link.addresses()
	if err != nil {
		return err
	}
	var changes batch
	for _, address := range addresses {
		if !address.IP.Equal(n.address.IP) || !bytes.Equal(address.Mask, n.address.Mask) {
			changes.address(unix.RTM_DELADDR, link.index, address)
		}
	}
	n.configure(&changes, link)
	return changes.send()
}

// replace configures the interface of a machine that was another one. The link goes down first, which takes all routes and
// neighbours with it and keeps what still runs from being heard as the other machine; endConnections is called then, with
// the addresses of that machine, of which nothing stays even if the new one is the same.
func (n *network) replace(link *nic, endConnections func([]*net.IPNet)) error {
	var down batch
	down.setLink(link.index, false, nil, 0)
	if err := down.send(); err != nil {
		return err
	}
	addresses, err := link.addresses()
	if err != nil {
		return err
	}
	endConnections(addresses)
	var changes batch
	for _, address := range addresses {
		changes.address(unix.RTM_DELADDR, link.index, address)
	}
	n.configure(&changes, link)
	return changes.send()
}

func (n *network) configure(changes *batch, link *nic) {
	changes.setLink(link.index, true, n.mac, n.mtu)
	changes.address(unix.RTM_NEWADDR, link.index, n.address)
	if n.gateway != nil {
		changes.defaultRoute(link.index, n.gateway)
	}
}
