package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/api"
	"sandbar/guest-agent/internal/channel"
	"sandbar/guest-agent/internal/files"
	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/identity"
	"sandbar/guest-agent/internal/jobs"
	"sandbar/guest-agent/internal/modprobe"
	"sandbar/guest-agent/internal/reaper"
	"sandbar/guest-agent/internal/terminals"
	"sandbar/guest-agent/internal/volumes"
	"sandbar/guest-agent/internal/warmup"
)

var (
	testToken = channel.Token([]byte("0123456789abcdef0123456789abcdef"))
	reapOnce  sync.Once
	theReaper *reaper.Reaper
)

// TestMain also stands for the agent's own program, which the warm-up job starts: in these tests /proc/self/exe is the
// test program.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == warmup.Name {
		warmup.Run()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// agent is a guest agent in this process, with a socket pair instead of a virtio-serial port.
type agent struct {
	port     *port
	cgroups  string
	registry *jobs.Registry
	shells   *terminals.Registry
	gate     *freeze.Gate

	startGate *freeze.Gate
}

// startAgent starts an agent that already has an identity. The identity is not applied to the computer that runs the
// test.
func startAgent(t *testing.T) *agent {
	t.Helper()
	return startAgentAs(t, identity.Assumed("machine-1"))
}

func startAgentAs(t *testing.T, self *identity.Identity) *agent {
	t.Helper()
	reapOnce.Do(func() {
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		theReaper = reaper.New()
	})
	cgroups := makeCgroups(t)
	gate, startGate := new(freeze.Gate), new(freeze.Gate)
	registry, err := jobs.NewRegistry(jobs.Config{
		CgroupDirectory: cgroups,
		SpillDirectory:  filepath.Join(t.TempDir(), "spill"),
		Reaper:          theReaper,
		Gate:            gate,
	})
	if err != nil {
		t.Fatal(err)
	}
	shells, err := terminals.NewRegistry(terminals.Config{
		CgroupDirectory: cgroups,
		Reaper:          theReaper,
		Gate:            gate,
		StartGate:       startGate,
	})
	if err != nil {
		t.Fatal(err)
	}
	guest, port := socketPair(t)
	sessions := channel.New(guest, func() bool { return self.MachineID() == "" || startGate.IsShut() })
	go func() { _ = sessions.Run() }()
	machine := api.Machine{
		Version:  "test",
		Identity: self,
		Modprobe: modprobe.Pretended(),
		Jobs:     registry,
		Volumes:  volumes.New(),
		Freezer:  freeze.Pretended(gate),
		Gate:     gate,

		Processes: freeze.Pretended(startGate),
		StartGate: startGate,

		Terminals: shells,
		Features:  []api.Feature{shells, files.New(gate), registry},
	}
	go func() { _ = api.Serve(sessions, machine) }()
	return &agent{port: newPort(port), cgroups: cgroups, registry: registry, shells: shells, gate: gate, startGate: startGate}
}

func (a *agent) connect(t *testing.T) *host { return newHost(t, a.port, testToken) }

// makeCgroups creates a control group for the test, and removes it after the test. Skips the test without a usable
// cgroup2 file system.
func makeCgroups(t *testing.T) string {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if unix.Statfs(root, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		directory := filepath.Join(root, "sandbar-test-"+strconv.Itoa(os.Getpid())+"-"+filepath.Base(t.TempDir()))
		if err := os.Mkdir(directory, 0o755); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { removeCgroups(t, directory) })
		return directory
	}
	t.Skip("no cgroup2 file system")
	return ""
}

func removeCgroups(t *testing.T, directory string) {
	_ = os.WriteFile(filepath.Join(directory, "cgroup.kill"), []byte("1"), 0)
	eventually(t, "the control groups go away", func() bool {
		entries, _ := os.ReadDir(directory)
		for _, entry := range entries {
			if entry.IsDir() {
				_ = os.Remove(filepath.Join(directory, entry.Name()))
			}
		}
		err := os.Remove(directory)
		return err == nil || os.IsNotExist(err)
	})
}

func socketPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]net.Conn, 2)
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "port")
		if ends[i], err = net.FileConn(file); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}
