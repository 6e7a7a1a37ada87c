// Package api answers the requests that the host can send to the machine, and sends it the output of jobs. The README
// of the guest agent has the table of all requests.
package api

import (
	"strings"
	"sync/atomic"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/frames"
	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/identity"
	"sandbar/guest-agent/internal/jobs"
	"sandbar/guest-agent/internal/modprobe"
	"sandbar/guest-agent/internal/terminals"
	"sandbar/guest-agent/internal/volumes"
)

// Machine holds the parts of the machine that requests act on.
type Machine struct {
	Version  string
	PowerOff func() // does not return
	Identity *identity.Identity
	Modprobe *modprobe.Loader // forbidden while the machine has no identity
	Jobs     *jobs.Registry
	Volumes  *volumes.Table
	Freezer  *freeze.Freezer
	Gate     *freeze.Gate // shut while the root file system is frozen

	Processes *freeze.Freezer
	StartGate *freeze.Gate // shut while the processes are frozen

	Terminals *terminals.Registry
	Features  []Feature
}

type server struct {
	Machine
	guest   guestCalls
	streams atomic.Int64 // open guest streams
}

// Serve answers the requests on all sessions of the listener, until the listener fails.
func Serve(listener frames.Listener, machine Machine) error {
	s := &server{Machine: machine, guest: join(machine.Features)}
	return frames.Serve(listener, s.handle, refuse)
}

// refuse answers a request while too many others are open.
func refuse(c *frames.Call) {
	answerError(c, fault.New(fault.Internal, "too many requests at once"))
}

// handle passes a request to its handler.
func (s *server) handle(c *frames.Call) {
	parts := strings.SplitN(c.Path[1:], "/", 4)
	switch len(parts) {
	case 1:
		s.handleMachine(c, parts[0])
	case 2:
		s.handleThing(c, parts[0], parts[1])
	case 3:
		s.handlePart(c, parts[0], parts[1], parts[2])
	default:
		answerUnknown(c)
	}
}

func answerUnknown(c *frames.Call) { answerError(c, fault.New(fault.NotFound, "no such request")) }

// handleMachine handles a path of one part.
func (s *server) handleMachine(c *frames.Call, what string) {
	switch c.Method + " " + what {
	case "GET healthz":
		s.getHealth(c)
	case "PUT identity":
		s.putIdentity(c)
	case "POST lease":
		s.lease(c)
	case "POST claim":
		s.claim(c)
	case "POST warm-up":
		s.warmUp(c)
	case "GET jobs":
		s.listJobs(c)
	case "POST freeze":
		freezeWith(s.Freezer, c)
	case "POST thaw":
		answerDone(c, s.Freezer.Thaw())
	case "POST hold":
		freezeWith(s.Processes, c)
	case "POST release":
		answerDone(c, s.Processes.Thaw())
	case "POST poweroff":
		s.powerOff(c)
	default:
		answerUnknown(c)
	}
}

// handleThing handles the path of a job, a mount, a guest call or a guest stream.
func (s *server) handleThing(c *frames.Call, what, id string) {
	switch c.Method + " " + what {
	case "PUT jobs":
		s.putJob(c, id)
	case "GET jobs":
		s.getJob(c, id)
	case "DELETE jobs":
		answerDone(c, s.Jobs.Delete(id))
	case "POST calls":
		s.postCall(c, id)
	case "POST streams":
		s.postStream(c, id)
	case "PUT mounts":
		s.putMount(c, id)
	case "DELETE mounts":
		answerDone(c, s.Volumes.Unmount(id))
	default:
		answerUnknown(c)
	}
}

// handlePart handles a path below that of a job.
func (s *server) handlePart(c *frames.Call, what, id, part string) {
	switch c.Method + " " + what + " " + part {
	case "GET jobs stream":
		s.streamJob(c, id)
	case "POST jobs ack":
		s.acknowledgeJob(c, id)
	case "POST jobs cancel":
		s.cancelJob(c, id)
	default:
		answerUnknown(c)
	}
}
