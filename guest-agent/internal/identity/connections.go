// Ends the network connections of a machine that gets a new identity after a memory snapshot. They belong to its old
// address, so without this their programs would wait for minutes for answers. The kernel ends them on request
// (sock_diag(7), SOCK_DESTROY).

package identity

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	sockDiagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	sockDestroy      = 21 // SOCK_DESTROY

	// Sizes of struct inet_diag_req_v2 and struct inet_diag_sockid in bytes, and the offsets of struct inet_diag_sockid
	// in struct inet_diag_req_v2 and in struct inet_diag_msg.
	diagRequestSize = 56
	socketIDSize    = 48
	idInRequest     = 8
	idInMessage     = 4
	localAddress    = 4 // offset in struct inet_diag_sockid, after the two ports; 16 bytes long

	stateEstablished = 1 // also the state of a connected UDP socket
	stateListen      = 10
)

// socketKinds lists the protocols whose connections are ended, with a bit mask of the socket states to end.
var socketKinds = [...]struct {
	protocol byte
	states   uint32
}{
	{unix.IPPROTO_TCP, 0xfff &^ (1 << stateListen)},
	{unix.IPPROTO_UDP, 1 << stateEstablished},
}

// haveSockets reports whether a socket may use one of the addresses. It reads /proc, so it works without the kernel
// modules that endConnections needs.
func haveSockets(addresses []netip.Prefix) bool {
	for _, file := range [...]string{"tcp", "tcp6", "udp", "udp6"} {
		content, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil && !os.IsNotExist(err) {
			return true
		}
		for _, address := range addresses {
			if bytes.Contains(content, inProc(address.Addr())) {
				return true
			}
		}
	}
	return false
}

// inProc formats an IPv4 address, and the colon before the port, as in /proc/net/tcp. An IPv6 socket that uses an IPv4
// address has the same text at the end of its longer address.
func inProc(address netip.Addr) []byte {
	return fmt.Appendf(nil, "%08X:", native.Uint32(address.AsSlice()))
}

// endConnections ends every connection whose local address is one of the addresses. Its program gets ECONNABORTED.
func endConnections(addresses []netip.Prefix) error {
	if len(addresses) == 0 {
		return nil
	}
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(socket)
	var failure error
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} { // IPv6 sockets can use IPv4 addresses too
		for _, kind := range socketKinds {
			ids, err := connectionsOf(socket, family, kind.protocol, kind.states, addresses)
			if err != nil {
				failure = err
			}
			for _, id := range ids {
				if err := destroySocket(socket, family, kind.protocol, id); err != nil && err != unix.ENOENT {
					failure = err
				}
			}
		}
	}
	return failure
}

// connectionsOf returns the ids (struct inet_diag_sockid) of the sockets whose local address is one of the addresses.
func connectionsOf(socket int, family, protocol byte, states uint32, addresses []netip.Prefix) (ids [][]byte, err error) {
	request := diagRequest(sockDiagByFamily, unix.NLM_F_DUMP, family, protocol)
	native.PutUint32(request[unix.SizeofNlMsghdr+4:], states)
	if err := unix.Sendto(socket, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("send", err)
	}
	answer := make([]byte, 32<<10)
	for {
		messages, err := receive(socket, answer)
		if err != nil {
			return nil, err
		}
		for _, message := range messages {
			switch message.Header.Type {
			case unix.NLMSG_DONE:
				return ids, nil
			case unix.NLMSG_ERROR:
				return nil, errnoOf(message)
			}
			if id := message.Data[idInMessage:]; len(id) >= socketIDSize && hasAddress(id, addresses) {
				ids = append(ids, slices.Clone(id[:socketIDSize]))
			}
		}
	}
}

// hasAddress reports whether the local address in a socket id is one of the addresses, also when an IPv6 socket uses
// it.
func hasAddress(id []byte, addresses []netip.Prefix) bool {
	local := id[localAddress : localAddress+16]
	short, long := netip.AddrFrom4([4]byte(local)), netip.AddrFrom16([16]byte(local)).Unmap()
	return slices.ContainsFunc(addresses, func(address netip.Prefix) bool {
		return address.Addr() == short || address.Addr() == long
	})
}

func destroySocket(socket int, family, protocol byte, id []byte) error {
	request := diagRequest(sockDestroy, unix.NLM_F_ACK, family, protocol)
	copy(request[unix.SizeofNlMsghdr+idInRequest:], id)
	if err := unix.Sendto(socket, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("send", err)
	}
	messages, err := receive(socket, make([]byte, 4096))
	if err != nil || len(messages) == 0 {
		return err
	}
	return errnoOf(messages[0])
}

func diagRequest(kind, flags uint16, family, protocol byte) []byte {
	request := make([]byte, unix.SizeofNlMsghdr+diagRequestSize)
	native.PutUint32(request, uint32(len(request)))
	native.PutUint16(request[4:], kind)
	native.PutUint16(request[6:], unix.NLM_F_REQUEST|flags)
	request[unix.SizeofNlMsghdr] = family
	request[unix.SizeofNlMsghdr+1] = protocol
	return request
}

func receive(socket int, space []byte) ([]syscall.NetlinkMessage, error) {
	for {
		n, _, err := unix.Recvfrom(socket, space, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("receive", err)
		}
		return syscall.ParseNetlinkMessage(space[:n])
	}
}

// errnoOf returns the error that a netlink acknowledgement reports, or nil for success.
func errnoOf(message syscall.NetlinkMessage) error {
	if message.Header.Type != unix.NLMSG_ERROR || len(message.Data) < 4 {
		return nil
	}
	if errno := syscall.Errno(-int32(native.Uint32(message.Data))); errno != 0 {
		return errno
	}
	return nil
}
