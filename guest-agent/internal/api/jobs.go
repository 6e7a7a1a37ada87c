package api

import (
	"encoding/json"
	"strconv"
	"strings"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/frames"
	"sandbar/guest-agent/internal/jobs"
	"sandbar/guest-agent/internal/warmup"
)

// The ids of the only jobs that a guest without an identity runs, as a warm-up before its snapshot becomes a template.
// They run fixed commands, whatever the request says, so that no user's command runs before the guest has its identity.
const (
	// warmUpID runs the agent's own program (internal/warmup), which is not on the disk.
	warmUpID = "warm-up"
	// warmUpShellID runs the disk's /bin/sh. The host starts it only on an unchanged image, because on a user's disk
	// /bin/sh may be any program.
	warmUpShellID = "warm-up-shell"
)

// warmUpRequest returns the request of the warm-up job with this id, or nil if id is not one of them.
func warmUpRequest(id string) *jobs.Request {
	switch id {
	case warmUpID:
		return &jobs.Request{Argv: []string{"/proc/self/exe", warmup.Name}, Cwd: "/"}
	case warmUpShellID:
		command := "echo warm-up"
		return &jobs.Request{Command: &command}
	}
	return nil
}

// offsets holds a position, in bytes, in each of the two output streams of a job.
type offsets struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

func (s *server) putJob(c *frames.Call, id string) {
	from, err := parseOffsets(c.Query)
	if err != nil {
		answerError(c, err)
		return
	}
	if err := await(c, s.Gate); err != nil {
		answerError(c, err)
		return
	}
	if err := enter(c, s.StartGate); err != nil {
		answerError(c, err)
		return
	}
	job, created, err := s.startJob(id, c.Body)
	s.StartGate.Leave()
	if err != nil {
		answerError(c, err)
		return
	}
	status := statusOK
	if created {
		status = statusCreated
	}
	streamOutput(c, status, job, from)
}

func (s *server) startJob(id string, body []byte) (*jobs.Job, bool, error) {
	if !jobs.ValidID(id) {
		return nil, false, fault.New(fault.Validation, "a job id is 1 to 64 letters, digits, - and _")
	}
	request, err := jobs.ParseRequest(body)
	if err != nil {
		return nil, false, err
	}
	if s.Identity.MachineID() == "" {
		if request = warmUpRequest(id); request == nil {
			return nil, false, errNoIdentity
		}
	}
	return s.Jobs.Put(id, request)
}

func (s *server) streamJob(c *frames.Call, id string) {
	from, err := parseOffsets(c.Query)
	if err != nil {
		answerError(c, err)
		return
	}
	if job, ok := s.findJob(c, id); ok {
		streamOutput(c, statusOK, job, from)
	}
}

func (s *server) acknowledgeJob(c *frames.Call, id string) {
	job, ok := s.findJob(c, id)
	if !ok {
		return
	}
	var to offsets
	if err := json.Unmarshal(c.Body, &to); err != nil || to.Stdout < 0 || to.Stderr < 0 {
		answerError(c, fault.New(fault.Validation, "the body is not a pair of offsets"))
		return
	}
	answerDone(c, job.Acknowledge(to.Stdout, to.Stderr))
}

func (s *server) cancelJob(c *frames.Call, id string) {
	if job, ok := s.findJob(c, id); ok {
		job.Cancel()
		answer(c, statusAccepted, job.Status())
	}
}

func (s *server) getJob(c *frames.Call, id string) {
	if job, ok := s.findJob(c, id); ok {
		answer(c, statusOK, job.Status())
	}
}

type jobsBody struct {
	Jobs []jobs.Status `json:"jobs"`
}

func (s *server) listJobs(c *frames.Call) {
	body := jobsBody{Jobs: []jobs.Status{}}
	for _, job := range s.Jobs.List() {
		body.Jobs = append(body.Jobs, job.Status())
	}
	answer(c, statusOK, body)
}

// findJob returns the job that the path names. If there is none, it answers the request with 404 and returns false.
func (s *server) findJob(c *frames.Call, id string) (*jobs.Job, bool) {
	job, err := s.Jobs.Get(id)
	if err != nil {
		answerError(c, err)
		return nil, false
	}
	return job, true
}

// parseOffsets reads the query of a stream, such as stdout=7&stderr=0. A missing or empty offset is 0.
func parseOffsets(query string) (offsets, error) {
	var found offsets
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if value == "" {
			continue
		}
		offset, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			return offsets{}, fault.New(fault.Validation, "stdout and stderr are byte offsets")
		}
		switch name {
		case "stdout":
			found.Stdout = int64(offset)
		case "stderr":
			found.Stderr = int64(offset)
		}
	}
	return found, nil
}
