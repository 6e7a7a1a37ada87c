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

// apply configures the interface. What is right already stays as it is, so that giving a running machine the identity
// that it has cuts no connection. fresh: the machine never had a network, so that there is nothing to remove.
func (n *network) apply(link *nic, fresh bool) error {
	var changes batch
	if !fresh {
		if err := n.removeOthers(&changes, link); err != nil {
			return err
		}
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

// removeOthers removes the addresses of the same family that the interface has beside the wanted one.
func (n *network) removeOthers(changes *batch, link *nic) error {
	addresses, err := link.addresses()
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if !address.IP.Equal(n.address.IP) || !bytes.Equal(address.Mask, n.address.Mask) {
			changes.address(unix.RTM_DELADDR, link.index, address)
		}
	}
	return nil
}
