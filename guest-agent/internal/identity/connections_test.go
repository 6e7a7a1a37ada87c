package identity

import (
	"net/netip"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"
)

// connect opens a TCP connection from the address to itself and returns the sockets of both ends.
func connect(t *testing.T, address [4]byte) (fds [2]int) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(err)
	defer unix.Close(listener)
	must(unix.Bind(listener, &unix.SockaddrInet4{Addr: address}))
	must(unix.Listen(listener, 1))
	name, err := unix.Getsockname(listener)
	must(err)
	fds[0], err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(err)
	must(unix.Connect(fds[0], name))
	fds[1], _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
	must(err)
	return fds
}

var (
	regexpUp  = regexp.MustCompile(`\bUP\b`)
	regexpOld = regexp.MustCompile(`192\.168\.7`)
)

func TestReplacingTheNetworkEndsItsConnections(t *testing.T) {
	inNetwork(t, func(t *testing.T, link *nic) {
		ip(t, "link set lo up")
		if err := wanted(t, validRequest()).begin(link); err != nil {
			t.Fatal(err)
		}
		ip(t, "route add 192.168.7.0/24 via 10.1.0.9")
		old, local := connect(t, [4]byte{10, 1, 2, 3}), connect(t, [4]byte{127, 0, 0, 1})
		ended := false
		err := wanted(t, validRequest()).replace(link, func(addresses []netip.Prefix) { // the address stays the same
			if !haveSockets(addresses) {
				t.Error("no sockets were found")
			}
			if got := ip(t, "-br link show eth0"); len(addresses) != 1 || regexpUp.MatchString(got) {
				t.Errorf("%v, %s", addresses, got)
			}
			ended = endConnections(addresses) == nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := ip(t, "route show"); regexpOld.MatchString(got) {
			t.Error(got)
		}
		if !ended {
			t.Skip("the kernel of this host cannot end connections")
		}
		for _, fd := range old {
			if _, err := unix.Read(fd, make([]byte, 1)); err != unix.ECONNABORTED && err != unix.ECONNRESET {
				t.Errorf("the old connection: %v", err)
			}
		}
		if _, err := unix.Write(local[0], []byte("x")); err != nil {
			t.Errorf("the connection of the loopback: %v", err)
		}
		if haveSockets([]netip.Prefix{netip.MustParsePrefix("10.1.2.4/16")}) {
			t.Error("sockets of an address that nobody has")
		}
	})
}
