package identity

import (
	"bytes"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// network holds the network settings of a request after their validation.
type network struct {
	address *net.IPNet
	gateway net.IP           // nil: no default route
	mac     net.HardwareAddr // nil: keep the current one
	mtu     int              // in bytes; zero: keep the current one
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

// begin configures the interface of a machine that has had no network settings so far.
func (n *network) begin(link *nic) error {
	var changes batch
	n.configure(&changes, link)
	return changes.send()
}

// keep configures the interface of a machine that has network settings already. It does not touch settings that are
// right, so that a repeated identity breaks no connection.
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

// replace configures the interface of a machine that had another identity. It first takes the link down. This removes
// all routes and neighbours, and programs that still run can send nothing with the old address. Then it calls
// endConnections with the old addresses and removes them, even if the new address is the same.
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
