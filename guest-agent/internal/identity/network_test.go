package identity

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inNetwork runs a test in a network namespace of its own, with a tap device as the machine's interface. The thread
// stays in that namespace, so it stays locked, and Go ends it together with its goroutine.
func inNetwork(t *testing.T, run func(t *testing.T, link *nic)) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		ip(t, "tuntap add eth0 mode tap")
		link, err := readLink(t, "eth0")
		if err != nil {
			t.Error(err)
			return
		}
		run(t, link)
	}()
	<-done
}

func ip(t *testing.T, arguments string) string {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(arguments)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %s", arguments, out)
	}
	return string(out)
}

// readLink returns the interface with this name. The tests make virtual interfaces, and findNIC skips those.
func readLink(t *testing.T, name string) (*nic, error) {
	t.Helper()
	found, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	return &nic{index: int32(found.Index), name: name, mac: found.HardwareAddr}, nil
}

func wanted(t *testing.T, fields map[string]any) *network {
	t.Helper()
	request, err := parse(t, fields)
	if err != nil {
		t.Fatal(err)
	}
	network, err := request.network()
	if err != nil {
		t.Fatal(err)
	}
	return network
}

func TestNetworkIsAppliedAndReplaced(t *testing.T) {
	inNetwork(t, func(t *testing.T, link *nic) {
		for round := range 2 { // the second round applies the same settings again
			apply := wanted(t, validRequest()).begin
			if round > 0 {
				apply = wanted(t, validRequest()).keep
			}
			if err := apply(link); err != nil {
				t.Fatal(err)
			}
			if got := ip(t, "addr show dev eth0"); !strings.Contains(got, "52:54:00:00:00:01") ||
				!strings.Contains(got, "inet 10.1.2.3/16 brd 10.1.255.255 scope global eth0") || !strings.Contains(got, "UP") {
				t.Error(got)
			}
			if got := ip(t, "route show default"); !strings.HasPrefix(got, "default via 10.1.0.1 dev eth0 proto static") {
				t.Error(got)
			}
		}
		fields := validRequest()
		fields["address"], fields["gateway"], fields["mtu"] = "10.9.0.7/24", "10.9.0.1", 1400
		if err := wanted(t, fields).keep(link); err != nil {
			t.Fatal(err)
		}
		if got := ip(t, "-4 addr show dev eth0"); strings.Contains(got, "10.1.2.3") || !strings.Contains(got, "10.9.0.7/24") ||
			!strings.Contains(got, "mtu 1400") {
			t.Error(got)
		}
	})
}

func TestNetworkThatTheKernelRefusesIsAnError(t *testing.T) {
	inNetwork(t, func(t *testing.T, link *nic) {
		fields := validRequest()
		fields["gateway"] = "172.16.0.1" // not in the network of the address
		if err := wanted(t, fields).begin(link); err != unix.ENETUNREACH {
			t.Errorf("%v", err)
		}
		if err := wanted(t, validRequest()).begin(&nic{index: 999}); err != unix.ENODEV {
			t.Errorf("%v", err)
		}
	})
}

func TestWarmUpOfTheNetworkLeavesNoTrace(t *testing.T) {
	inNetwork(t, func(t *testing.T, link *nic) {
		state := func() string { // without the queueing discipline, which the kernel adds when the link first goes up
			return regexp.MustCompile(` qdisc \S+`).ReplaceAllString(ip(t, "addr show dev eth0"), "")
		}
		before := state()
		if err := wanted(t, validRequest()).warmUp(link); err != nil {
			t.Fatal(err)
		}
		if after := state(); after != before {
			t.Errorf("%s\nwas\n%s", after, before)
		}
		if routes := ip(t, "route show"); routes != "" {
			t.Error(routes)
		}
		if sent := content(t, "/proc/thread-self/net/dev"); !strings.Contains(sent, "eth0:       0       0") {
			t.Error(sent)
		}
	})
}

func TestInterfacesOfProgramsAreNotTheMachines(t *testing.T) {
	inNetwork(t, func(t *testing.T, _ *nic) {
		if link, err := findNIC(); err != errNoInterface {
			t.Errorf("%+v, %v", link, err)
		}
	})
}
