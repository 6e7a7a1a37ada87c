package api

import (
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/console"
	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/identity"
)

// answerGrace is how long the answer to a power-off gets to leave the machine.
const answerGrace = 50 * time.Millisecond

type healthBody struct {
	Version  string `json:"version"`
	BootID   string `json:"boot_id"`
	UptimeMs int64  `json:"uptime_ms"`
	Identity string `json:"identity"`
}

func (s *server) getHealth(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, healthBody{
		Version:  s.Version,
		BootID:   s.bootID(),
		UptimeMs: uptime().Milliseconds(),
		Identity: s.Identity.MachineID(),
	})
}

// bootID is read only once the machine is itself: the kernel makes it up at the first read, and a template that had read
// it would give the same one to all its clones.
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

// putIdentity changes nothing when processes that should have been held were not. They stay held when it fails later: the
// host throws such a machine away.
func (s *server) putIdentity(w http.ResponseWriter, r *http.Request) {
	s.identify(w, r, func(request *identity.Request) error {
		if request.WasHeld {
			if err := s.Processes.Keep(); err != nil {
				return err
			}
		}
		isAnother := s.Identity.IsAnother(request)
		switch {
		case s.Identity.MachineID() == "":
			if err := s.Jobs.DeleteAll(); err != nil { // of a rehearsal that the host did not see to its end
				return err
			}
		case isAnother:
			s.Freezer.Release()
			s.Jobs.LetGo()
			s.Volumes.LetGo()
		}
		if err := s.Gate.Await(r.Context()); err != nil {
			return err
		}
		if err := s.Identity.Apply(request); err != nil {
			return err
		}
		if isAnother || request.WasHeld {
			s.Processes.Release()
		}
		return nil
	})
}

// rehearse takes what PUT /identity takes, and leaves nothing of it.
func (s *server) rehearse(w http.ResponseWriter, r *http.Request) {
	s.identify(w, r, s.Identity.Rehearse)
}

func (s *server) identify(w http.ResponseWriter, r *http.Request, apply func(*identity.Request) error) {
	body, err := readBody(w, r)
	if err != nil {
		answerError(w, err)
		return
	}
	request, err := identity.ParseRequest(body)
	if err != nil {
		answerError(w, err)
		return
	}
	if err := apply(request); err != nil {
		answerError(w, err)
		return
	}
	answer(w, http.StatusOK, struct{}{})
}

func freezeWith(freezer *freeze.Freezer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(w, r)
		if err != nil {
			answerError(w, err)
			return
		}
		timeout, err := freeze.ParseTimeout(body)
		if err != nil {
			answerError(w, err)
			return
		}
		answerDone(w, freezer.Freeze(r.Context(), timeout))
	}
}

func thawWith(freezer *freeze.Freezer) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answerDone(w, freezer.Thaw()) }
}

func (s *server) powerOff(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusAccepted, struct{}{})
	go func() {
		time.Sleep(answerGrace)
		s.PowerOff()
	}()
}
