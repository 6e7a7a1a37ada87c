package identity

import (
	"errors"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

var errNoInterface = errors.New("no interface")

// nic is the machine's network interface.
type nic struct {
	index int32
	name  string
	mac   []byte // its address before the first identity
}

// findNIC returns the first Ethernet interface that is a device. It skips interfaces made by programs, such as bridges.
func findNIC() (*nic, error) {
	messages, err := dump(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	for _, message := range messages {
		if found := parseLink(message); found != nil {
			return found, nil
		}
	}
	return nil, errNoInterface
}

// parseLink returns the interface that the message describes, or nil if it is not an Ethernet device.
func parseLink(message syscall.NetlinkMessage) *nic {
	if message.Header.Type != unix.RTM_NEWLINK || len(message.Data) < unix.SizeofIfInfomsg ||
		native.Uint16(message.Data[2:]) != unix.ARPHRD_ETHER {
		return nil
	}
	attributes, err := syscall.ParseNetlinkRouteAttr(&message)
	if err != nil {
		return nil
	}
	found := &nic{index: int32(native.Uint32(message.Data[4:]))}
	for _, attribute := range attributes {
		switch attribute.Attr.Type {
		case unix.IFLA_IFNAME:
			found.name = unix.ByteSliceToString(attribute.Value)
		case unix.IFLA_ADDRESS:
			found.mac = attribute.Value
		case unix.IFLA_LINKINFO:
			return nil // made by a program: a bridge, a dummy interface, a veth pair
		}
	}
	if len(found.mac) != 6 {
		return nil
	}
	return found
}

// withoutIPv6 turns IPv6 off on the interface. Machines have no IPv6 address, and the host drops all IPv6 packets. So
// programs see at once that there is no IPv6, and the kernel sends no router solicitations. A kernel without IPv6 is no
// error.
func (n *nic) withoutIPv6() error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+n.name+"/disable_ipv6", []byte("1"), 0)
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// addresses lists the IPv4 addresses of the interface.
func (n *nic) addresses() ([]netip.Prefix, error) {
	messages, err := dump(unix.RTM_GETADDR, unix.AF_INET)
	if err != nil {
		return nil, err
	}
	var found []netip.Prefix
	for _, message := range messages {
		if message.Header.Type != unix.RTM_NEWADDR || len(message.Data) < unix.SizeofIfAddrmsg ||
			int32(native.Uint32(message.Data[4:])) != n.index {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&message)
		if err != nil {
			return nil, err
		}
		for _, attribute := range attributes {
			if attribute.Attr.Type == unix.IFA_LOCAL && len(attribute.Value) == 4 {
				address := netip.AddrFrom4([4]byte(attribute.Value))
				found = append(found, netip.PrefixFrom(address, int(message.Data[1])))
			}
		}
	}
	return found, nil
}

func dump(kind, family int) ([]syscall.NetlinkMessage, error) {
	answer, err := syscall.NetlinkRIB(kind, family)
	if err != nil {
		return nil, err
	}
	return syscall.ParseNetlinkMessage(answer)
}
