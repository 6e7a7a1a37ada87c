package identity

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

var errNoInterface = errors.New("no interface")

// nic is the machine's network interface.
type nic struct {
	index int32
	name  string
	mac   net.HardwareAddr // as it was found
}

// findNIC returns the first Ethernet interface that is a device, not one made by a program.
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

// parseLink returns nothing for what is not an Ethernet device.
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
			return nil // a bridge, a dummy, a pair
		}
	}
	if len(found.mac) != 6 {
		return nil
	}
	return found
}

// withoutIPv6 takes the interface out of IPv6: no machine gets an address of it, and the host lets none of its packets
// through. So programs see that there is none, and the kernel does not ask around for one. A kernel that has no IPv6 has
// nothing to turn off.
func (n *nic) withoutIPv6() error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+n.name+"/disable_ipv6", []byte("1"), 0)
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// addresses lists the IPv4 addresses of the interface.
func (n *nic) addresses() ([]*net.IPNet, error) {
	messages, err := dump(unix.RTM_GETADDR, unix.AF_INET)
	if err != nil {
		return nil, err
	}
	var found []*net.IPNet
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
				found = append(found, &net.IPNet{IP: attribute.Value, Mask: net.CIDRMask(int(message.Data[1]), 32)})
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
