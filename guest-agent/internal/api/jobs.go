package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"sandbar/guest-agent/internal/fault"
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

func (s *server) putJob(w http.ResponseWriter, r *http.Request) {
	from, err := parseOffsets(r.URL)
	if err != nil {
		answerError(w, err)
		return
	}
	body, err := readBody(w, r)
	if err != nil {
		answerError(w, err)
		return
	}
	if err := s.Gate.Await(r.Context()); err != nil {
		answerError(w, err)
		return
	}
	if err := s.StartGate.EnterOpen(r.Context()); err != nil {
		answerError(w, err)
		return
	}
	job, created, err := s.startJob(r.PathValue("id"), body)
	s.StartGate.Leave()
	if err != nil {
		answerError(w, err)
		return
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	streamOutput(w, r, status, job, from)
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
			return nil, false, fault.New(fault.Conflict, "the machine has no identity yet")
		}
	}
	return s.Jobs.Put(id, request)
}

func (s *server) streamJob(w http.ResponseWriter, r *http.Request) {
	from, err := parseOffsets(r.URL)
	if err != nil {
		answerError(w, err)
		return
	}
	if job, ok := s.findJob(w, r); ok {
		streamOutput(w, r, http.StatusOK, job, from)
	}
}

func (s *server) acknowledgeJob(w http.ResponseWriter, r *http.Request) {
	job, ok := s.findJob(w, r)
	if !ok {
		return
	}
	body, err := readBody(w, r)
	if err != nil {
		answerError(w, err)
		return
	}
	var to offsets
	if err := json.Unmarshal(body, &to); err != nil || to.Stdout < 0 || to.Stderr < 0 {
		answerError(w, fault.New(fault.Validation, "the body is not a pair of offsets"))
		return
	}
	answerDone(w, job.Acknowledge(to.Stdout, to.Stderr))
}

func (s *server) cancelJob(w http.ResponseWriter, r *http.Request) {
	if job, ok := s.findJob(w, r); ok {
		job.Cancel()
		answer(w, http.StatusAccepted, job.Status())
	}
}

func (s *server) getJob(w http.ResponseWriter, r *http.Request) {
	if job, ok := s.findJob(w, r); ok {
		answer(w, http.StatusOK, job.Status())
	}
}

func (s *server) deleteJob(w http.ResponseWriter, r *http.Request) {
	answerDone(w, s.Jobs.Delete(r.PathValue("id")))
}

type jobsBody struct {
	Jobs []jobs.Status `json:"jobs"`
}

func (s *server) listJobs(w http.ResponseWriter, _ *http.Request) {
	body := jobsBody{Jobs: []jobs.Status{}}
	for _, job := range s.Jobs.List() {
		body.Jobs = append(body.Jobs, job.Status())
	}
	answer(w, http.StatusOK, body)
}

// findJob returns the job that the path names. If there is none, it answers the request with 404 and returns false.
func (s *server) findJob(w http.ResponseWriter, r *http.Request) (*jobs.Job, bool) {
	job, err := s.Jobs.Get(r.PathValue("id"))
	if err != nil {
		answerError(w, err)
		return nil, false
	}
	return job, true
}

func parseOffsets(address *url.URL) (offsets, error) {
	if address.RawQuery == "" {
		return offsets{}, nil
	}
	query := address.Query()
	stdout, errOut := parseOffset(query.Get("stdout"))
	stderr, errErr := parseOffset(query.Get("stderr"))
	if errOut != nil || errErr != nil {
		return offsets{}, fault.New(fault.Validation, "stdout and stderr are byte offsets")
	}
	return offsets{stdout, stderr}, nil
}

func parseOffset(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	offset, err := strconv.ParseUint(text, 10, 63)
	return int64(offset), err
}
