package api

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
	"sandbar/guest-agent/internal/frames"
	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/identity"
)

// answerGrace is the pause before a power-off, so that the answer to the request reaches the host first.
const answerGrace = 50 * time.Millisecond

type healthBody struct {
	Version  string `json:"version"`
	BootID   string `json:"boot_id"`
	UptimeMs int64  `json:"uptime_ms"`
	Identity string `json:"identity"`
	// AwaitsDisk says that the root disk is not mounted yet, because it is mounted when the identity arrives.
	AwaitsDisk bool `json:"awaits_disk"`
}

func (s *server) getHealth(c *frames.Call) {
	answer(c, statusOK, healthBody{
		Version:  s.Version,
		BootID:   s.bootID(),
		UptimeMs: uptime().Milliseconds(),
		Identity: s.Identity.MachineID(),

		AwaitsDisk: s.Identity.AwaitsDisk(),
	})
}

// bootID returns the kernel's boot id, or an empty string before the machine has an identity. The kernel generates the
// id at the first read. If a template read it, all its clones would have the same boot id.
func (s *server) bootID() string {
	if s.Identity.MachineID() == "" {
		return ""
	}
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		console.Log(err.Error())
	}
	return strings.TrimSpace(string(content))
}

func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// putIdentity gives the machine its identity. If the request says that all processes were held since a memory snapshot,
// and they were not, it refuses and changes nothing. If it fails after that check, the processes stay held, because the
// host then discards the machine.
func (s *server) putIdentity(c *frames.Call) {
	identify(c, identity.ParseRequest, done, func(request *identity.Request) error {
		if request.WasHeld {
			if err := s.Processes.Keep(); err != nil {
				return err
			}
		}
		isAnother := s.Identity.IsAnother(request)
		switch {
		case s.Identity.MachineID() == "":
			if err := s.Jobs.DeleteAll(); err != nil { // the warm-up job, when the host did not delete it itself
				return err
			}
		case isAnother:
			if err := s.Modprobe.Forbid(); err != nil {
				return err
			}
			s.Freezer.Release()
			s.Jobs.LetGo()
			s.Terminals.LetGo()
			s.Volumes.LetGo()
		}
		if err := await(c, s.Gate); err != nil {
			return err
		}
		if err := s.Identity.Apply(request); err != nil {
			return err
		}
		if err := s.Modprobe.Allow(); err != nil {
			return err
		}
		if isAnother || request.WasHeld {
			s.Processes.Release()
		}
		return nil
	})
}

// Answers to requests about the identity. The first one tells the host that the lease has set the hostname and the system
// id too, so that it can be claimed. Older agents answer a lease with nothing.
var (
	leased = []byte(`{"has_names":true}`)
	done   = []byte("{}")
)

// lease gives the machine all of an identity but the machine id. It takes the same request as PUT /identity.
func (s *server) lease(c *frames.Call) {
	identify(c, identity.ParseRequest, leased, func(request *identity.Request) error {
		if err := s.Identity.Lease(request); err != nil {
			return err
		}
		return s.Modprobe.WarmUp() // the claim ends with the same system call
	})
}

// claim makes the lease the machine's identity.
func (s *server) claim(c *frames.Call) {
	identify(c, identity.ParseClaim, done, func(request *identity.Request) error { return s.applyClaim(c, request) })
}

func (s *server) applyClaim(c *frames.Call, request *identity.Request) error {
	if s.Identity.MachineID() == "" {
		if err := s.Jobs.DeleteAll(); err != nil { // the warm-up job, when the host did not delete it itself
			return err
		}
	}
	if err := await(c, s.Gate); err != nil {
		return err
	}
	if err := s.Identity.Claim(request); err != nil {
		return err
	}
	return s.Modprobe.Allow()
}

// warmUp warms up the code of PUT /identity. It takes the same request, applies it and undoes it at once.
func (s *server) warmUp(c *frames.Call) {
	identify(c, identity.ParseRequest, done, func(request *identity.Request) error {
		if err := s.Identity.WarmUp(request); err != nil {
			return err
		}
		return s.Modprobe.WarmUp()
	})
}

// identify reads a request about the identity, applies it and answers.
func identify(
	c *frames.Call,
	parse func([]byte) (*identity.Request, error),
	body []byte,
	apply func(*identity.Request) error,
) {
	request, err := parse(c.Body)
	if err == nil {
		err = apply(request)
	}
	if err != nil {
		answerError(c, err)
		return
	}
	c.Answer(statusOK, body)
}

func freezeWith(freezer *freeze.Freezer, c *frames.Call) {
	timeout, err := freeze.ParseTimeout(c.Body)
	if err != nil {
		answerError(c, err)
		return
	}
	answerDone(c, freezer.Freeze(c.Context(), timeout))
}

func (s *server) powerOff(c *frames.Call) {
	answer(c, statusAccepted, struct{}{})
	go func() {
		time.Sleep(answerGrace)
		s.PowerOff()
	}()
}
