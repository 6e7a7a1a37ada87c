// Package api serves the requests that the host can send to the machine: HTTP/2 with JSON bodies, and a binary stream
// for the output of a job.
package api

import (
	"log"
	"net"
	"net/http"
	"os"

	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/identity"
	"sandbar/guest-agent/internal/jobs"
	"sandbar/guest-agent/internal/modprobe"
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
}

type server struct{ Machine }

// NewHandler returns the handler of all requests.
func NewHandler(machine Machine) http.Handler {
	s := &server{machine}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.getHealth)
	mux.HandleFunc("PUT /identity", s.putIdentity)
	mux.HandleFunc("POST /warm-up", s.warmUp)
	mux.HandleFunc("GET /jobs", s.listJobs)
	mux.HandleFunc("PUT /jobs/{id}", s.putJob)
	mux.HandleFunc("GET /jobs/{id}", s.getJob)
	mux.HandleFunc("DELETE /jobs/{id}", s.deleteJob)
	mux.HandleFunc("GET /jobs/{id}/stream", s.streamJob)
	mux.HandleFunc("POST /jobs/{id}/ack", s.acknowledgeJob)
	mux.HandleFunc("POST /jobs/{id}/cancel", s.cancelJob)
	mux.HandleFunc("PUT /mounts/{id}", s.putMount)
	mux.HandleFunc("DELETE /mounts/{id}", s.deleteMount)
	mux.HandleFunc("POST /freeze", freezeWith(s.Freezer))
	mux.HandleFunc("POST /thaw", thawWith(s.Freezer))
	mux.HandleFunc("POST /hold", freezeWith(s.Processes))
	mux.HandleFunc("POST /release", thawWith(s.Processes))
	mux.HandleFunc("POST /poweroff", s.powerOff)
	return mux
}

// Serve answers HTTP/2 requests (with prior knowledge) on all sessions of the listener, until the listener fails. It
// sets no time limits, because the host may pause the machine at any point and resume it a week later.
func Serve(listener net.Listener, handler http.Handler) error {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler:        handler,
		Protocols:      protocols,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       log.New(os.Stderr, "sandbar-agent: ", 0), // the console
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          250,
			MaxReadFrameSize:              1 << 20,
			MaxReceiveBufferPerConnection: 4<<20 - 1, // net/http allows less than 4 MiB
			MaxReceiveBufferPerStream:     1 << 20,
		},
	}
	return s.Serve(listener)
}
