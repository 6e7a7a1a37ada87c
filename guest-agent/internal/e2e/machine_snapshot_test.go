package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// snapshot holds the paths of two files: the state of a machine's memory and devices, and its disk at the same moment.
type snapshot struct{ state, disk string }

// save takes a snapshot of the machine and ends it.
func (m *machine) save(t *testing.T) snapshot {
	t.Helper()
	directory := t.TempDir()
	s := snapshot{filepath.Join(directory, "state"), filepath.Join(directory, "disk")}
	q := m.monitor(t)
	q.do(`{"execute": "stop"}`)
	q.do(fmt.Sprintf(`{"execute": "migrate", "arguments": {"uri": "exec:cat > %s"}}`, s.state))
	eventually(t, "the state is saved", func() bool {
		var progress struct{ Status string }
		if err := json.Unmarshal(q.do(`{"execute": "query-migrate"}`), &progress); err != nil {
			t.Fatal(err)
		}
		return progress.Status == "completed"
	})
	if out, err := exec.Command("cp", m.disk, s.disk).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	if _, err := q.conn.Write([]byte(`{"execute": "quit"}`)); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, m)
	return s
}

// restore starts a machine from the snapshot and lets it run.
func (s snapshot) restore(t *testing.T) *machine {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk")
	if out, err := exec.Command("cp", s.disk, disk).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	m := startMachine(t, disk, "-incoming", "exec:cat "+s.state)
	q := m.monitor(t)
	eventually(t, "the state is loaded", func() bool {
		return bytes.Contains(q.do(`{"execute": "query-status"}`), []byte(`"paused"`))
	})
	q.do(`{"execute": "cont"}`)
	return m
}

// connections is a Perl program that holds four connections open: three with the machine's own address (TCP over IPv4,
// TCP over an IPv6 socket, UDP) and one with the loopback address. When one ends, it writes the reason to
// /dev/shm/ended-NAME. A new identity must end the first three only.
const connections = `
use strict; use Socket qw(:all); my $n = 0;
sub held { my ($name, $domain, $type, $peer) = @_;
  return if fork;
  socket(my $s, $domain, $type, 0) or die "socket $!"; connect($s, $peer) or die "connect $name $!";
  open(my $f, '>', "/dev/shm/held-$name"); close $f;
  my $end = defined sysread($s, my $b, 1) ? 'end' : $!{ECONNABORTED} || $!{ECONNRESET} ? 'aborted' : "$!";
  open($f, '>', "/dev/shm/ended-$name"); print $f $end; close $f; exit }
socket(my $l, PF_INET, SOCK_STREAM, 0); bind($l, pack_sockaddr_in(999, INADDR_ANY)) or die; listen($l, 9);
held('tcp', PF_INET, SOCK_STREAM, pack_sockaddr_in(999, inet_aton('10.0.2.15')));
held('tcp6', PF_INET6, SOCK_STREAM, pack_sockaddr_in6(999, inet_pton(AF_INET6, '::ffff:10.0.2.15')));
held('udp', PF_INET, SOCK_DGRAM, pack_sockaddr_in(53, inet_aton('10.0.2.2')));
held('loopback', PF_INET, SOCK_STREAM, pack_sockaddr_in(999, inet_aton('127.0.0.1')));
my @taken; while (accept(my $c, $l)) { push @taken, $c }`

func TestMachineFromAMemorySnapshotGetsANewIdentity(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	h.expect(200, "PUT", "/identity", identityOf(machineA))
	h.check("mkdir -p /etc/ssh /var/lib/systemd; echo a > /etc/ssh/ssh_host_a_key; echo a > /var/lib/systemd/random-seed; ip route add 192.168.7.0/24 via 10.0.2.9; sync", "")
	h.background("perl -e '" + strings.ReplaceAll(connections, "'", "'\\''") + "' 2>/root/errors")
	eventually(t, "the connections are there", func() bool {
		return strings.TrimSpace(string(h.sh(fmt.Sprint("c", time.Now().UnixNano()), "ls /dev/shm | grep -c held").stdout)) == "4"
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	job := map[string]any{"command": "trap 'echo broken > /dev/shm/broken' PIPE; i=0; while :; do i=$((i+1)); echo $i > /dev/shm/alive; head -c 300000 /dev/zero; done", "timeout_sec": 15}
	chatty := h.send(ctx, "PUT", "/jobs/chatty", job)
	for range 20 {
		if _, err := chatty.output(); err != nil {
			t.Fatal(err)
		}
	}
	// From here on nobody reads the stream, so the port is full when the snapshot is taken.
	taken := m.save(t)
	cancel()

	var random [2]string
	for i := range random {
		m := taken.restore(t)
		begin := time.Now()
		h := newHost(t, m.port, testToken)
		identity := identityOf(machineB)
		identity["time_unix_ms"] = time.Now().Add(time.Hour).UnixMilli() // a clock that only the identity can set
		identity["address"], identity["entropy"] = "10.0.2.16/24", bytes.Repeat([]byte{byte(i)}, 32)
		h.expect(200, "PUT", "/identity", identity)
		t.Logf("another machine after %v", time.Since(begin))
		if jobs := h.expect(200, "GET", "/jobs", nil); jobs != `{"jobs":[]}` {
			t.Error(jobs)
		}
		random[i] = string(h.run("chatty", map[string]any{"command": "head -c 16 /dev/urandom | od -An -tx1"}).stdout)
		h.check("ip -4 -o addr show eth0 | awk '{print $4}'; ip route; cat /sys/class/net/eth0/address; ip neigh | grep -v 10.0.2.2",
			"10.0.2.16/24\ndefault via 10.0.2.2 dev eth0 proto static \n10.0.2.0/24 dev eth0 proto kernel scope link src 10.0.2.16 \n52:54:00:00:00:07")
		h.check("hostname; cat /etc/hostname /etc/machine-id /var/lib/sandbar/identity; grep -c m-0295 /etc/hosts; grep -c m-0195 /etc/hosts; ls /etc/ssh/ssh_host_a_key /var/lib/systemd/random-seed",
			"m-0295\nm-0295\n0295a1b2c3d47890abcdef0123456789\n"+machineB+"\n1\n0")
		h.check(fmt.Sprintf("n=$(date +%%s); test $((n - %d)) -lt 60 -a $((%d - n)) -lt 60 && echo right", time.Now().Add(time.Hour).Unix(), time.Now().Add(time.Hour).Unix()), "right")
		eventually(t, "the connections of the old address end", func() bool {
			return strings.TrimSpace(string(h.sh(fmt.Sprint("e", time.Now().UnixNano()), "ls /dev/shm | grep -c ended").stdout)) == "3"
		})
		h.check("cat /dev/shm/ended-tcp /dev/shm/ended-tcp6 /dev/shm/ended-udp; ls /dev/shm/ended-loopback 2>/dev/null", "abortedabortedaborted")
		before := string(h.sh("before", "cat /dev/shm/alive").stdout)
		eventually(t, "the processes of the old jobs go on", func() bool {
			return string(h.sh(fmt.Sprint("a", time.Now().UnixNano()), "cat /dev/shm/alive").stdout) != before
		})
		h.check("ls /dev/shm/broken 2>/dev/null; ls -l /proc/1/fd | grep -c spill", "0")
		h = newHost(t, m.port, testToken)
		h.expect(200, "GET", "/healthz", nil)
	}
	if random[0] == random[1] {
		t.Errorf("two machines draw the same (CLN-1): %s", random[0])
	}
}

func TestMachineWithANewIdentityDropsItsVolumes(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	h.expect(200, "PUT", "/identity", identityOf(machineA))
	q := m.monitor(t)
	q.plug(2, makeVolume(t))
	h.expect(204, "PUT", "/mounts/v", at(2, "/mnt/v"))
	h.check("echo > /mnt/v/file", "")
	h.background("sleep 1000 3>/mnt/v/file")
	h.expect(204, "POST", "/freeze", map[string]any{"timeout_ms": 60000})
	begin := time.Now()
	h.expect(200, "PUT", "/identity", identityOf(machineB))
	t.Logf("another machine after %v", time.Since(begin))
	h.expect(409, "POST", "/thaw", nil)
	h.check("grep -c /mnt/v /proc/mounts; ls /sys/block | grep -c sd", "0\n0")
	other := makeVolume(t)
	q.unplug(2)
	q.plug(2, other)
	h.expect(204, "PUT", "/mounts/w", at(2, "/mnt/v"))
}

// A process logs the time and the host name all the time. The machine's processes are held while the snapshot is taken,
// and the restored machine gets its identity a second later. The log must show that nothing ran in that second.
func TestMachineFromAMemorySnapshotRunsNoProcessBeforeItsIdentity(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	h.expect(200, "PUT", "/identity", identityOf(machineA))
	h.background("while :; do read up rest < /proc/uptime; read name < /proc/sys/kernel/hostname; echo $up $name >> /dev/shm/log; sleep 0.01; done")
	h.check("mkdir /sys/fs/cgroup/own; sleep 1000 & echo $! > /sys/fs/cgroup/own/cgroup.procs; echo", "")
	noted := func() int {
		var lines int
		_, _ = fmt.Sscan(string(h.sh(fmt.Sprint("n", time.Now().UnixNano()), "wc -l < /dev/shm/log").stdout), &lines)
		return lines
	}
	eventually(t, "the process notes", func() bool { return noted() > 3 })
	for range 3 {
		begin := time.Now()
		h.expect(204, "POST", "/hold", map[string]any{"timeout_ms": 5000})
		t.Logf("held after %v", time.Since(begin))
		h.expect(409, "POST", "/hold", map[string]any{"timeout_ms": 5000})
		h.expect(204, "POST", "/release", nil)
		h.expect(409, "POST", "/release", nil)
	}
	h.expect(204, "POST", "/hold", map[string]any{"timeout_ms": 1})
	before := noted() // this job starts only after the time limit of the hold
	eventually(t, "the process goes on by itself", func() bool { return noted() > before })
	held := identityOf(machineB)
	held["was_held"] = true
	h.expect(409, "PUT", "/identity", held)
	h.check("hostname", "m-0195")

	h.expect(204, "POST", "/hold", map[string]any{"timeout_ms": 60000})
	h = newHost(t, m.save(t).restore(t).port, testToken)
	h.expect(200, "GET", "/healthz", nil)
	time.Sleep(time.Second) // no process may run in this second
	h.expect(200, "PUT", "/identity", held)
	h.expect(409, "POST", "/release", nil)
	eventually(t, "the process goes on", func() bool {
		return len(h.sh(fmt.Sprint("new", time.Now().UnixNano()), "grep m-0295 /dev/shm/log").stdout) > 0
	})
	h.check("awk '$2 == \"m-0295\" { print (($1 - last) > 0.9 ? \"held\" : \"ran on until\" last), name; exit } { last = $1; name = $2 }' /dev/shm/log", "held m-0195")
	h.check("cat /sys/fs/cgroup/own/cgroup.freeze", "0")
}
