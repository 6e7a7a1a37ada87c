package jobs

import (
	"context"
	"encoding/json"
	"syscall"
	"time"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/fault"
)

// maxInputWait is the longest time that a request may wait for a command to read its standard input.
const maxInputWait = time.Minute

// signals are the signals that the host may send, by the names that it uses.
var signals = map[string]syscall.Signal{
	"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "QUIT": syscall.SIGQUIT,
}

// Calls returns the guest calls that act on running jobs.
func (r *Registry) Calls() map[string]calls.Call {
	return map[string]calls.Call{"jobs.stdin": r.callStdin, "jobs.signal": r.callSignal}
}

// Streams returns no guest streams.
func (r *Registry) Streams() map[string]calls.Stream { return nil }

type stdinParams struct {
	ID     string `json:"id"`
	Offset int64  `json:"offset"`
	Data   []byte `json:"data"`
	Close  bool   `json:"close"`
	WaitMs int64  `json:"wait_ms"`
}

func (r *Registry) callStdin(ctx context.Context, body []byte) (any, error) {
	var params stdinParams
	if err := json.Unmarshal(body, &params); err != nil {
		return nil, invalid("the parameters of jobs.stdin are not valid: " + err.Error())
	}
	if params.Offset < 0 || params.Offset > maxInputOffset {
		return nil, invalid("offset is out of range")
	}
	if params.WaitMs < 0 || params.WaitMs > maxInputWait.Milliseconds() {
		return nil, invalid("wait_ms is out of range")
	}
	job, err := r.Get(params.ID)
	if err != nil {
		return nil, err
	}
	if job.stdin == nil {
		return nil, fault.New(fault.Conflict, "the job was started without stdin_open")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(params.WaitMs)*time.Millisecond)
	defer cancel()
	return job.stdin.append(ctx, params.Offset, params.Data, params.Close)
}

// maxInputOffset is the largest offset that a number in JSON holds exactly everywhere.
const maxInputOffset = 1<<53 - 1

type signalParams struct {
	ID     string `json:"id"`
	Signal string `json:"signal"`
}

func (r *Registry) callSignal(_ context.Context, body []byte) (any, error) {
	var params signalParams
	if err := json.Unmarshal(body, &params); err != nil {
		return nil, invalid("the parameters of jobs.signal are not valid: " + err.Error())
	}
	sig, known := signals[params.Signal]
	if !known {
		return nil, invalid("no such signal: " + params.Signal)
	}
	job, err := r.Get(params.ID)
	if err != nil {
		return nil, err
	}
	return struct{}{}, job.signalFirst(sig)
}
