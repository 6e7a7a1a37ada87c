// Builds and sends the rtnetlink(7) messages that configure a network interface. All changes of an identity are sent in
// one batch, so that a waiting clone gets its network with a single write.

package identity

import (
	"encoding/binary"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

var native = binary.NativeEndian

// batch is a sequence of messages. The kernel executes them in order and continues after a failed one. Only the last
// message asks for an acknowledgement.
type batch struct {
	bytes []byte
	last  int // offset of the last message
	count uint32
}

// message appends a message of type kind with its fixed part. flags are added to NLM_F_REQUEST.
func (b *batch) message(kind, flags uint16, fixed []byte) {
	b.last = len(b.bytes)
	b.count++
	b.bytes = native.AppendUint32(b.bytes, 0) // the length, set by close
	b.bytes = native.AppendUint16(b.bytes, kind)
	b.bytes = native.AppendUint16(b.bytes, unix.NLM_F_REQUEST|flags)
	b.bytes = native.AppendUint32(b.bytes, b.count)
	b.bytes = native.AppendUint32(b.bytes, 0)
	b.bytes = append(b.bytes, fixed...)
	b.close()
}

// attribute appends an attribute to the last message and pads it to a multiple of four bytes.
func (b *batch) attribute(kind uint16, value []byte) {
	b.bytes = native.AppendUint16(b.bytes, uint16(unix.SizeofRtAttr+len(value)))
	b.bytes = native.AppendUint16(b.bytes, kind)
	b.bytes = append(b.bytes, value...)
	for len(b.bytes)%4 != 0 {
		b.bytes = append(b.bytes, 0)
	}
	b.close()
}

func (b *batch) close() { native.PutUint32(b.bytes[b.last:], uint32(len(b.bytes)-b.last)) }

// setLink brings the interface up or down. It also sets the MAC address (nil: keep it) and the MTU (0: keep it), which
// the kernel applies first.
func (b *batch) setLink(index int32, up bool, mac []byte, mtu int) {
	fixed := make([]byte, unix.SizeofIfInfomsg)
	native.PutUint32(fixed[4:], uint32(index))
	if up {
		native.PutUint32(fixed[8:], unix.IFF_UP)
	}
	native.PutUint32(fixed[12:], unix.IFF_UP)
	b.message(unix.RTM_NEWLINK, 0, fixed)
	if mac != nil {
		b.attribute(unix.IFLA_ADDRESS, mac)
	}
	if mtu != 0 {
		b.attribute(unix.IFLA_MTU, native.AppendUint32(nil, uint32(mtu)))
	}
}

// address adds (RTM_NEWADDR) or removes (RTM_DELADDR) an IPv4 address. Adding an existing address changes nothing.
func (b *batch) address(kind uint16, index int32, address netip.Prefix) {
	bits := address.Bits()
	fixed := []byte{unix.AF_INET, byte(bits), 0, unix.RT_SCOPE_UNIVERSE, 0, 0, 0, 0}
	native.PutUint32(fixed[4:], uint32(index))
	b.message(kind, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, fixed)
	ip := address.Addr().As4()
	b.attribute(unix.IFA_LOCAL, ip[:])
	b.attribute(unix.IFA_ADDRESS, ip[:])
	if kind == unix.RTM_NEWADDR && bits < 31 {
		last := binary.BigEndian.Uint32(ip[:]) | ^uint32(0)>>bits
		b.attribute(unix.IFA_BROADCAST, binary.BigEndian.AppendUint32(nil, last))
	}
}

// defaultRoute sets the default route to the gateway.
func (b *batch) defaultRoute(index int32, gateway netip.Addr) {
	fixed := make([]byte, unix.SizeofRtMsg)
	fixed[0] = unix.AF_INET
	fixed[4] = unix.RT_TABLE_MAIN
	fixed[5] = unix.RTPROT_STATIC
	fixed[6] = unix.RT_SCOPE_UNIVERSE
	fixed[7] = unix.RTN_UNICAST
	b.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, fixed)
	b.attribute(unix.RTA_GATEWAY, gateway.AsSlice())
	b.attribute(unix.RTA_OIF, native.AppendUint32(nil, uint32(index)))
}

// send sends all messages to the kernel, waits for their answers and returns the first error.
func (b *batch) send() error {
	flags := native.Uint16(b.bytes[b.last+6:])
	native.PutUint16(b.bytes[b.last+6:], flags|unix.NLM_F_ACK)
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(socket)
	if err := unix.Sendto(socket, b.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("send", err)
	}
	var failure error
	answer := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(socket, answer, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("receive", err)
		}
		sequence, errno := parseAnswer(answer[:n])
		if errno != 0 && failure == nil {
			failure = errno
		}
		if sequence == b.count {
			return failure
		}
	}
}

// parseAnswer returns the sequence number and the error code (0: success) of an acknowledgement. It returns 0 and 0 for
// any other message.
func parseAnswer(answer []byte) (sequence uint32, errno syscall.Errno) {
	const fixed = unix.SizeofNlMsghdr + 4
	if len(answer) < fixed || native.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return 0, 0
	}
	return native.Uint32(answer[8:]), syscall.Errno(-int32(native.Uint32(answer[unix.SizeofNlMsghdr:])))
}
