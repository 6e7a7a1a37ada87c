package api

import (
	"net/http"
	"time"

	"golang.org/x/sys/unix"

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
		Version:  s.machine.Version,
		BootID:   s.machine.BootID,
		UptimeMs: uptime().Milliseconds(),
		Identity: s.identity.MachineID(),
	})
}

func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

func (s *server) putIdentity(w http.ResponseWriter, r *http.Request) {
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
	if err := s.identity.Apply(request); err != nil {
		answerError(w, err)
		return
	}
	answer(w, http.StatusOK, struct{}{})
}

func (s *server) powerOff(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusAccepted, struct{}{})
	go func() {
		time.Sleep(answerGrace)
		s.machine.PowerOff()
	}()
}
