// The guest agent is the first process of every Sandbar machine. It boots the machine from the initramfs, runs as PID 1
// until the machine ends, and executes the requests of the host, which arrive over a virtio-serial port.
package main

import (
	"os"
	"syscall"
	"time"

	"sandbar/guest-agent/internal/api"
	"sandbar/guest-agent/internal/boot"
	"sandbar/guest-agent/internal/channel"
	"sandbar/guest-agent/internal/console"
	"sandbar/guest-agent/internal/files"
	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/identity"
	"sandbar/guest-agent/internal/jobs"
	"sandbar/guest-agent/internal/modprobe"
	"sandbar/guest-agent/internal/ports"
	"sandbar/guest-agent/internal/power"
	"sandbar/guest-agent/internal/reaper"
	"sandbar/guest-agent/internal/terminals"
	"sandbar/guest-agent/internal/volumes"
	"sandbar/guest-agent/internal/warmup"
)

// version is set by the linker.
var version = "dev"

const (
	portName     = "org.sandbar.agent"
	portPatience = 5 * time.Second
	// cgroupDirectory holds the control groups of jobs and terminals.
	cgroupDirectory = "/sys/fs/cgroup/sandbar"
)

func main() {
	if os.Getpid() != 1 {
		runAsProgram()
		return
	}
	if err := run(); err != nil {
		power.Fail(err)
	}
}

// runAsProgram is what the agent does when it is not PID 1: the work of the warm-up job, or else it prints its version.
func runAsProgram() {
	if len(os.Args) > 1 && os.Args[1] == warmup.Name {
		warmup.Run()
		return
	}
	_, _ = os.Stdout.WriteString(version + "\n")
}

// run boots the machine and serves the host's requests. A bare machine mounts its root disk later, with its identity.
// run returns only after an error, which leaves the machine unusable.
func run() error {
	loader := modprobe.New()
	system, err := boot.Start(loader)
	if err != nil {
		return err
	}
	if !system.IsBare {
		if err := system.MountRoot(); err != nil {
			return err
		}
	}
	gate, startGate := new(freeze.Gate), new(freeze.Gate)
	children := reaper.New()
	registry, err := jobs.NewRegistry(jobs.Config{
		CgroupDirectory: cgroupDirectory,
		SpillDirectory:  "/var/lib/sandbar/spill",
		Reaper:          children,
		Gate:            gate,
	})
	if err != nil {
		return err
	}
	shells, err := terminals.NewRegistry(terminals.Config{
		CgroupDirectory: cgroupDirectory,
		Reaper:          children,
		Gate:            gate,
		StartGate:       startGate,
	})
	if err != nil {
		return err
	}
	contents := files.New(gate)
	raiseFileLimit()
	freezer := freeze.New(gate)
	processes := freeze.NewOfProcesses(startGate)
	powerOff := func() {
		registry.Abandon()
		shells.Abandon()
		freezer.Release()
		processes.Release()
		power.Off(func() {
			contents.Close()
			registry.Close()
		})
	}
	power.HandleSignals(powerOff)
	port, err := channel.OpenPort(portName, portPatience)
	if err != nil {
		return err
	}
	self := identity.New(system)
	// The channel accepts a new token before the first identity and while the processes are held for a memory snapshot,
	// because no program of a user runs then.
	host := channel.New(port, func() bool { return self.MachineID() == "" || startGate.IsShut() })
	machine := api.Machine{
		Version:  version,
		PowerOff: powerOff,
		Identity: self,
		Modprobe: loader,
		Jobs:     registry,
		Volumes:  volumes.New(),
		Freezer:  freezer,
		Gate:     gate,

		Processes: processes,
		StartGate: startGate,
		Terminals: shells,
		Features:  []api.Feature{registry, shells, contents, ports.Ports{}},
	}
	go func() { power.Fail(api.Serve(host, machine)) }()
	console.Log("ready, version ", version)
	return host.Run()
}

// raiseFileLimit raises the limit of open files. Jobs inherit it, and servers need many files. The agent itself needs a
// pipe for each process that a job has left in the background.
func raiseFileLimit() {
	limit := syscall.Rlimit{Cur: 65536, Max: 524288}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		console.Log("file limit: ", err.Error())
	}
}
