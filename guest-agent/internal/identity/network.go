package identity

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
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

// apply configures the machine's interface. What is right already is left alone, so that giving a running machine
// the identity that it has cuts no connection.
func (n *network) apply() error {
	link, err := firstInterface()
	if err != nil {
		return err
	}
	if err := n.setMAC(link); err != nil {
		return os.NewSyscallError("mac", err)
	}
	if n.mtu != 0 && link.Attrs().MTU != n.mtu {
		if err := netlink.LinkSetMTU(link, n.mtu); err != nil {
			return os.NewSyscallError("mtu", err)
		}
	}
	if err := n.setAddress(link); err != nil {
		return os.NewSyscallError("address", err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return os.NewSyscallError("up", err)
	}
	if n.gateway == nil {
		return nil
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: n.gateway, Protocol: unix.RTPROT_STATIC}
	if err := netlink.RouteReplace(route); err != nil {
		return os.NewSyscallError("route", err)
	}
	return nil
}

func firstInterface() (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		attributes := link.Attrs()
		if attributes.Flags&net.FlagLoopback == 0 && len(attributes.HardwareAddr) == 6 && link.Type() == "device" {
			return link, nil
		}
	}
	return nil, errors.New("no interface")
}

// setMAC takes the interface down first: not every driver changes a live one.
func (n *network) setMAC(link netlink.Link) error {
	if n.mac == nil || bytes.Equal(n.mac, link.Attrs().HardwareAddr) {
		return nil
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return err
	}
	return netlink.LinkSetHardwareAddr(link, n.mac)
}

// setAddress makes the address the only one of its family.
func (n *network) setAddress(link netlink.Link) error {
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	present := false
	for _, address := range addresses {
		if address.IP.Equal(n.address.IP) && bytes.Equal(address.Mask, n.address.Mask) {
			present = true
			continue
		}
		if err := netlink.AddrDel(link, &address); err != nil {
			return err
		}
	}
	if present {
		return nil
	}
	return netlink.AddrAdd(link, &netlink.Addr{IPNet: n.address})
}

// rehearse configures the interface, except that it stays down, and undoes it.
func (n *network) rehearse() error {
	link, err := firstInterface()
	if err != nil {
		return err
	}
	before := *link.Attrs()
	if err := n.setMAC(link); err != nil {
		return os.NewSyscallError("mac", err)
	}
	if err := n.setAddress(link); err != nil {
		return os.NewSyscallError("address", err)
	}
	if err := netlink.AddrDel(link, &netlink.Addr{IPNet: n.address}); err != nil {
		return os.NewSyscallError("address", err)
	}
	return os.NewSyscallError("mac", netlink.LinkSetHardwareAddr(link, before.HardwareAddr))
}
