package identity

import (
	"encoding/hex"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// network holds the network settings of a request after their validation.
type network struct {
	address netip.Prefix
	gateway netip.Addr // the zero value: no default route
	mac     []byte     // six bytes; nil: keep the current one
	mtu     int        // in bytes; zero: keep the current one
}

func (r *Request) network() (*network, error) {
	prefix, err := netip.ParsePrefix(r.Address)
	if err != nil || !prefix.Addr().Is4() {
		return nil, invalid("address is not an IPv4 address with its prefix length")
	}
	found := &network{address: prefix, mtu: r.MTU}
	if r.Gateway != "" {
		gateway, err := netip.ParseAddr(r.Gateway)
		if err != nil || !gateway.Is4() {
			return nil, invalid("gateway is not an IPv4 address")
		}
		found.gateway = gateway
	}
	if r.MAC != "" {
		if found.mac = parseMAC(r.MAC); found.mac == nil {
			return nil, invalid("mac is not a MAC address")
		}
	}
	if r.MTU != 0 && (r.MTU < 576 || r.MTU > 65535) {
		return nil, invalid("mtu is out of range")
	}
	return found, nil
}

// parseMAC returns the six bytes of an address such as 52:54:00:00:00:01, or nil if text is none.
func parseMAC(text string) []byte {
	parts := strings.Split(text, ":")
	if len(parts) != 6 {
		return nil
	}
	mac := make([]byte, 0, 6)
	for _, part := range parts {
		value, err := hex.DecodeString(part)
		if err != nil || len(value) != 1 {
			return nil
		}
		mac = append(mac, value[0])
	}
	return mac
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
		if address != n.address {
			changes.address(unix.RTM_DELADDR, link.index, address)
		}
	}
	n.configure(&changes, link)
	return changes.send()
}

// replace configures the interface of a machine that had another identity. It first takes the link down. This removes
// all routes and neighbours, and programs that still run can send nothing with the old address. Then it calls
// endConnections with the old addresses and removes them, even if the new address is the same.
func (n *network) replace(link *nic, endConnections func([]netip.Prefix)) error {
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
	if n.gateway.IsValid() {
		changes.defaultRoute(link.index, n.gateway)
	}
}
