package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandbar/guest-agent/internal/frames"
)

// machine is a real machine: a QEMU process with emulation.
type machine struct {
	port    *port
	socket  string
	qmp     string // path of the socket of QEMU's monitor
	disk    string
	console string // path of the log of the console
	kill    func() // ends the machine as a power failure does
	ended   chan struct{}
}

// bootMachine boots the kernel, initramfs and root file system that environment variables name. The initramfs must have
// the agent under test as /init.
func bootMachine(t *testing.T) *machine {
	t.Helper()
	rootfs := os.Getenv("SANDBAR_TEST_ROOTFS")
	if os.Getenv("SANDBAR_TEST_KERNEL") == "" || os.Getenv("SANDBAR_TEST_INITRAMFS") == "" || rootfs == "" {
		t.Skip("SANDBAR_TEST_KERNEL, SANDBAR_TEST_INITRAMFS and SANDBAR_TEST_ROOTFS name nothing to boot")
	}
	directory := t.TempDir()
	disk := filepath.Join(directory, "disk")
	// The disk is larger than the image, so that the agent has to grow the root file system.
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", "-b", rootfs, "-F", "raw", disk, "10G").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	return bootDisk(t, disk)
}

// bootDisk boots the kernel and initramfs of bootMachine with a disk that one of its machines has used.
func bootDisk(t *testing.T, disk string) *machine {
	t.Helper()
	kernel, initramfs := os.Getenv("SANDBAR_TEST_KERNEL"), os.Getenv("SANDBAR_TEST_INITRAMFS")
	return startMachine(t, disk, "-kernel", kernel, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet reboot=t cryptomgr.notests audit=0 noreplace-smp rcupdate.rcu_expedited=1 nowatchdog random.trust_cpu=on panic=-1 tsc_early_khz="+tscKHz()+" root=/dev/vda"+
			" "+os.Getenv("SANDBAR_TEST_APPEND"))
}

// startMachine starts QEMU with the disk and connects to the guest. more has the arguments to boot a kernel, or to
// restore a snapshot.
func startMachine(t *testing.T, disk string, more ...string) *machine {
	t.Helper()
	directory := t.TempDir()
	m := &machine{
		disk: disk, socket: filepath.Join(directory, "port"), qmp: filepath.Join(directory, "qmp"),
		console: filepath.Join(directory, "console"), ended: make(chan struct{}),
	}
	qemu := exec.Command("qemu-system-x86_64", append([]string{"-M", "microvm,acpi=on", "-accel", "tcg", "-cpu", "qemu64", "-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "file:" + m.console,
		"-qmp", "unix:" + m.qmp + ",server=on,wait=off",
		"-blockdev", "file,node-name=root-file,filename=" + disk, "-blockdev", "qcow2,node-name=root,file=root-file",
		"-device", "virtio-blk-device,drive=root", "-device", "virtio-scsi-device,id=scsi0",
		"-netdev", "user,id=n0", "-device", "virtio-net-device,netdev=n0", "-device", "virtio-serial-device",
		"-chardev", "socket,id=c0,server=on,wait=off,path=" + m.socket,
		"-device", "virtserialport,chardev=c0,name=org.sandbar.agent"}, more...)...)
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = qemu.Wait()
		close(m.ended)
	}()
	m.kill = func() {
		_ = qemu.Process.Kill() // fails if it has ended
		<-m.ended
	}
	t.Cleanup(func() {
		m.kill()
		if t.Failed() {
			log, _ := os.ReadFile(m.console)
			t.Logf("console:\n%s", log)
		}
	})
	m.connect(t)
	return m
}

// connect opens a new connection to the port, as the host does after a restart.
func (m *machine) connect(t *testing.T) {
	t.Helper()
	eventually(t, "the port is there", func() bool {
		conn, err := net.Dial("unix", m.socket)
		if err == nil {
			m.port = newPort(conn)
		}
		return err == nil
	})
}

// tscKHz returns the frequency of the TSC for the kernel command line. Without it, the kernel calibrates the TSC, and
// that can hang under emulation.
func tscKHz() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "cpu MHz" {
			mhz, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return strconv.Itoa(int(mhz * 1000))
		}
	}
	return "2500000"
}

func identityOf(machineID string) map[string]any {
	return map[string]any{
		"machine_id": machineID, "hostname": "m-" + machineID[:4], "address": "10.0.2.15/24", "gateway": "10.0.2.2",
		"dns": []string{"10.0.2.3"}, "mac": "52:54:00:00:00:07", "mtu": 1400, "time_unix_ms": time.Now().UnixMilli(),
		"entropy": bytes.Repeat([]byte("e"), 32),
	}
}

func TestAClaimMakesTheLeaseTheIdentity(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	const id = "0195a1b2-c3d4-7890-abcd-ef0123456789"
	claim := func() map[string]any {
		return map[string]any{"machine_id": id, "time_unix_ms": time.Now().Add(time.Hour).UnixMilli()}
	}
	leased := identityOf("leased")
	leased["hostname"], leased["system_id"] = "m-leased", "11111111-2222-4333-8444-555555555555"
	h.expect(409, "POST", "/claim", claim())
	for range 2 { // a warm-up undoes a lease, so that it cannot be claimed
		if got := string(h.expect(200, "POST", "/lease", leased)); got != `{"has_names":true}` {
			t.Error(got)
		}
		h.expect(409, "PUT", "/jobs/early", map[string]any{"command": "true"})
		h.expect(200, "POST", "/warm-up", identityOf("warmed-up"))
		h.expect(409, "POST", "/claim", claim())
	}
	h.expect(200, "POST", "/lease", leased)
	begin := time.Now()
	for range 2 { // the host may repeat it
		h.expect(200, "POST", "/claim", claim())
		t.Logf("claim in %v", time.Since(begin))
	}
	other := claim()
	other["machine_id"] = "another"
	h.expect(409, "POST", "/claim", other)
	h.expect(409, "POST", "/lease", leased)
	again := identityOf(id) // as the host sends it after a restart
	again["hostname"], again["system_id"] = "m-leased", "11111111-2222-4333-8444-555555555555"
	again["time_unix_ms"] = claim()["time_unix_ms"]
	for round := range 2 {
		if health := string(h.expect(200, "GET", "/healthz", nil)); !strings.Contains(health, `"identity":"`+id) {
			t.Error(health)
		}
		for name, c := range map[string][2]string{
			"names":    {"hostname; cat /etc/hostname /etc/machine-id; grep -c m-leased /etc/hosts", "m-leased\nm-leased\n11111111222243338444555555555555\n1"},
			"network":  {"cat /sys/class/net/eth0/address; ip -4 -o addr show eth0 | grep -o 'inet [0-9./]*'; cat /etc/resolv.conf", "52:54:00:00:00:07\ninet 10.0.2.15/24\nnameserver 10.0.2.3"},
			"clock":    {fmt.Sprintf("echo $(( $(date +%%s) - %d > 3500 ))", time.Now().Unix()), "1"},
			"modprobe": {"cat /proc/sys/kernel/modprobe", "/sbin/modprobe"},
		} {
			if result := h.sh(fmt.Sprint(name, round), c[0]); strings.TrimSpace(string(result.stdout)) != c[1] {
				t.Errorf("%s: %q, want %q", name, result.stdout, c[1])
			}
		}
		h.expect(200, "PUT", "/identity", again)
	}
}

func TestMachine(t *testing.T) {
	begin := time.Now()
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	health := h.expect(200, "GET", "/healthz", nil)
	t.Logf("health after %v: %s", time.Since(begin), health)
	h.expect(409, "PUT", "/jobs/early", map[string]any{"command": "true"})
	for range 3 {
		begin = time.Now()
		h.expect(200, "POST", "/warm-up", identityOf("warmed-up"))
		for _, job := range []string{"warm-up", "warm-up-shell"} {
			if got := h.run(job, map[string]any{"command": "true"}); got.String() != "exited 0 null|warm-up|" {
				t.Errorf("%s: %v", job, got)
			}
			h.expect(204, "DELETE", "/jobs/"+job, nil)
		}
		t.Logf("warm-up in %v", time.Since(begin))
	}
	const id = "0195a1b2-c3d4-7890-abcd-ef0123456789"
	other := identityOf("leased")
	other["address"] = "10.0.2.16/24"
	h.expect(200, "POST", "/lease", other)
	h.expect(200, "POST", "/warm-up", identityOf("warmed-up"))
	h.expect(200, "POST", "/lease", identityOf("leased"))
	for range 2 {
		begin = time.Now()
		h.expect(200, "PUT", "/identity", identityOf(id))
		t.Logf("identity in %v", time.Since(begin))
	}
	h.expect(409, "POST", "/warm-up", identityOf("warmed-up"))
	h.expect(409, "POST", "/lease", identityOf("leased"))
	for name, c := range map[string][2]string{
		"hostname":   {"hostname; cat /etc/hostname; grep -c m-0195 /etc/hosts", "m-0195\nm-0195\n1"},
		"machine-id": {"cat /etc/machine-id", "0195a1b2c3d47890abcdef0123456789"},
		"resolv":     {"cat /etc/resolv.conf", "nameserver 10.0.2.3"},
		"network":    {"cat /sys/class/net/eth0/address /sys/class/net/eth0/mtu; awk '$2==\"00000000\"{print $3}' /proc/net/route", "52:54:00:00:00:07\n1400\n0202000A"},
		"addresses":  {"ip -4 -o addr show eth0 | grep -o 'inet [0-9./]*'; cat /sys/class/net/eth0/operstate", "inet 10.0.2.15/24\nup"},
		"size":       {"df -BG --output=size / | tail -1 | awk '{print ($1+0>=9)}'", "1"},
		"root":       {"awk '$2==\"/\"{print $1,$3}' /proc/mounts", "/dev/vda ext4"},
		"init":       {"ls /proc/1/root/ | grep -c root-fs; cat /proc/1/oom_score_adj /proc/self/oom_score_adj", "0\n0\n0"},
		"limits":     {"ulimit -n; ulimit -Hn; umask", "65536\n524288\n0022"},
		"devices":    {"ls -d /dev/fd /dev/stdin /dev/pts/ptmx /dev/shm /run | wc -l; echo x > /dev/stderr", "5"},
		"tmpfs":      {"stat -c %a /run /dev/shm /tmp", "755\n1777\n1777"},
		"zombies":    {"(sleep 0.01 &) ; sleep 0.1; ps -eo stat | grep -c Z", "0"},
		"cgroup":     {"cat /sys/fs/cgroup/sandbar/cgroup.controllers; sed 's/[0-9]*$//' /proc/self/cgroup", "cpu memory pids\n0::/sandbar/job-"},
	} {
		if result := h.sh(name, c[0]); strings.TrimSpace(string(result.stdout)) != c[1] {
			t.Errorf("%s: %s\nwant %q", name, result, c[1])
		}
	}
	measure(t, "GET /healthz", 200, func(int) { h.expect(200, "GET", "/healthz", nil) })
	measure(t, "job true (argv)", 50, func(i int) { h.run(fmt.Sprint("t", i), map[string]any{"argv": []string{"true"}}) })
	measure(t, "job echo (sh)", 50, func(i int) { h.sh(fmt.Sprint("e", i), "echo hello") })
	measureBegin(t, h)
	for _, acknowledge := range []bool{false, true} {
		measureBulk(t, h, acknowledge)
	}
	measureMemory(t, h)
	busy := agentCPU(t, h, "busy1")
	_ = m.port.Close() // disconnect in the middle of a session
	time.Sleep(3 * time.Second)
	m.connect(t)
	h = newHost(t, m.port, testToken)
	if ticks := agentCPU(t, h, "busy2") - busy; ticks > 15 {
		t.Errorf("%d ticks of CPU in 3 s without a host", ticks)
	}
	for i := range 5 {
		h = newHost(t, m.port, testToken)
		if got := h.sh(fmt.Sprint("again", i), "echo again"); got.String() != "exited 0 null|again|" {
			t.Error(got)
		}
	}
	h.sh("daemon", "sleep 1000 & mkdir -p /mnt/x; mount -t tmpfs x /mnt/x; echo data > /root/written")
	begin = time.Now()
	h.expect(202, "POST", "/poweroff", nil)
	select {
	case <-m.ended:
		t.Logf("powered off in %v", time.Since(begin))
	case <-time.After(15 * time.Second):
		t.Error("the machine does not power off")
	}
	log, _ := os.ReadFile(m.console)
	t.Logf("console:\n%s", log)
}

func agentCPU(t *testing.T, h *host, id string) int {
	t.Helper()
	fields := strings.Fields(string(h.sh(id, "cat /proc/1/stat").stdout))
	user, _ := strconv.Atoi(fields[13])
	system, _ := strconv.Atoi(fields[14])
	return user + system
}

// measureBulk logs how long 100 MB of output take. Acknowledged output stays in the agent's memory; without
// acknowledgements it goes through the disk.
func measureBulk(t *testing.T, h *host, acknowledge bool) {
	t.Helper()
	const size = 100_000_000
	id := fmt.Sprint("bulk-", acknowledge)
	begin := time.Now()
	response := h.send(context.Background(), "PUT", "/jobs/"+id, map[string]any{"command": fmt.Sprint("head -c ", size, " /dev/zero")})
	var offset, acknowledged int64
	for {
		frame, err := response.next()
		if err != nil {
			t.Fatal(err)
		}
		if frame.kind == frames.KindEnd {
			break
		}
		if frame.offset != offset {
			t.Fatalf("frame at %d, want %d", frame.offset, offset)
		}
		offset += int64(len(frame.payload))
		if acknowledge && offset-acknowledged >= 256<<10 {
			acknowledged = offset
			h.expect(204, "POST", "/jobs/"+id+"/ack", map[string]int64{"stdout": offset})
		}
	}
	if offset != size {
		t.Errorf("%d bytes", offset)
	}
	t.Logf("100 MB of output, acknowledged %v: %v", acknowledge, time.Since(begin))
	h.expect(204, "DELETE", "/jobs/"+id, nil)
}

// measureMemory runs 16 jobs that print without end while nobody reads their output, and checks that the agent uses at
// most 120 MB of memory.
func measureMemory(t *testing.T, h *host) {
	t.Helper()
	for i := range 16 {
		ctx, cancel := context.WithCancel(context.Background())
		h.send(ctx, "PUT", fmt.Sprint("/jobs/endless", i),
			map[string]any{"command": "cat /dev/zero & cat /dev/zero >&2", "timeout_sec": 8, "max_output_bytes": 64 << 20})
		cancel()
	}
	eventually(t, "the endless jobs end", func() bool {
		return strings.Count(h.expect(200, "GET", "/jobs", nil), `"timed_out"`) == 16
	})
	peak := string(h.sh("peak", "grep VmHWM /proc/1/status").stdout)
	kilobytes, _ := strconv.Atoi(strings.Fields(peak)[1])
	if kilobytes > 120_000 {
		t.Errorf("the agent took %d kB", kilobytes)
	}
	t.Logf("peak of the agent's memory: %d kB", kilobytes)
	for i := range 16 {
		h.expect(204, "DELETE", fmt.Sprint("/jobs/endless", i), nil)
	}
}

// measure logs the durations of the calls. It does not check them, because they depend on the computer.
func measure(t *testing.T, what string, calls int, call func(int)) {
	t.Helper()
	took := make([]time.Duration, calls)
	for i := range took {
		begin := time.Now()
		call(i)
		took[i] = time.Since(begin)
	}
	first := took[0]
	slices.Sort(took)
	t.Logf("%s: first %v, median %v, p90 %v", what, first, took[calls/2], took[calls*9/10])
}

// measureBegin logs how long after the request of a short job the host knows that it has begun, and that it has ended.
func measureBegin(t *testing.T, h *host) {
	t.Helper()
	var begun, ended [50]time.Duration
	for i := range begun {
		begin := time.Now()
		response := h.send(t.Context(), "PUT", fmt.Sprint("/jobs/b", i), map[string]any{"command": "echo hello"})
		begun[i] = time.Since(begin)
		var result outcome
		if err := result.read(response, 0, 0); err != nil {
			t.Fatal(err)
		}
		ended[i] = time.Since(begin)
	}
	slices.Sort(begun[:])
	slices.Sort(ended[:])
	t.Logf("job echo (sh): begun after %v (p90 %v), ended after %v (p90 %v)", begun[25], begun[45], ended[25], ended[45])
}

func TestMachineWithoutRootDevicePowersOff(t *testing.T) {
	t.Setenv("SANDBAR_TEST_APPEND", "root=/dev/none")
	expectRefusedBoot(t, "stat /dev/none")
}

// TestMachineWithoutTimerPowersOff disables the timer of the processor. The kernel does the same when the calibration
// of the timer fails.
func TestMachineWithoutTimerPowersOff(t *testing.T) {
	t.Setenv("SANDBAR_TEST_APPEND", "nolapic_timer")
	expectRefusedBoot(t, "the timer of a processor does not work")
}

// expectRefusedBoot boots a machine and expects it to power off for this reason.
func expectRefusedBoot(t *testing.T, reason string) {
	t.Helper()
	m := bootMachine(t)
	select {
	case <-m.ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the machine lives on")
	}
	if log, _ := os.ReadFile(m.console); !bytes.Contains(log, []byte("sandbar-agent: fatal: "+reason)) {
		t.Errorf("console: %s", log)
	}
}
