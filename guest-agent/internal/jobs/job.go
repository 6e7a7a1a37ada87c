// A job has one goroutine that owns its process from start to end, and a pump for each pipe of output:
//
//	running --main process exits--> drain pipes -----------------------------> exited
//	   |---cancel----> TERM to all, 5 s, KILL, group empty, drain pipes ------> canceled
//	   '---time-out--> the same ----------------------------------------------> timed_out
//
// A machine that is made from a memory snapshot lets go of the jobs that were running: their processes live on, no
// goroutine owns them any more, and their output is dropped.

package jobs

import (
	"runtime"
	"sync"
	"syscall"
	"time"

	"sandbar/guest-agent/internal/output"
	"sandbar/guest-agent/internal/process"
)

// State is the state of a job.
type State string

// The states of a job. Running is the only state that can still change.
const (
	Running  State = "running"
	Exited   State = "exited"
	Canceled State = "canceled"
	TimedOut State = "timed_out"
)

// Status is the report about a job that the host gets. The byte counts are those of the kept output, which ends at the
// limit.
type Status struct {
	ID             string  `json:"id"`
	State          State   `json:"status"`
	ExitCode       *int    `json:"exit_code"`
	Signal         *string `json:"signal"`
	StdoutBytes    int64   `json:"stdout_bytes"`
	StderrBytes    int64   `json:"stderr_bytes"`
	Truncated      bool    `json:"truncated"`
	StartedUnixMs  int64   `json:"started_unix_ms"`
	FinishedUnixMs *int64  `json:"finished_unix_ms"`
	StdinBytes     *int64  `json:"stdin_bytes"` // accepted bytes of the standard input; nil if it was not left open
}

// Job is one command that is running or has ended.
type Job struct {
	id      string
	started time.Time
	stdout  *output.Buffer
	stderr  *output.Buffer
	merged  bool   // the standard error goes to stdout as well
	stdin   *input // nil if the request did not ask for an open standard input

	signalProcess func(syscall.Signal) error // sends a signal to the first process; nil if it never ran

	changed event // output was added or the job ended
	freed   event // output was acknowledged

	cancelOnce sync.Once
	canceled   chan struct{}
	letGo      chan struct{} // closed when the machine lets go of the job

	mu       sync.Mutex
	state    State
	exitCode *int
	signal   *string
	finished time.Time
}

func newJob(id string, request *Request, config *Config) *Job {
	limit := request.outputLimit()
	job := &Job{
		id:       id,
		started:  time.Now(),
		stdout:   output.NewBuffer(limit, config.SpillDirectory, config.Gate),
		stderr:   output.NewBuffer(limit, config.SpillDirectory, config.Gate),
		merged:   request.MergeOutput,
		canceled: make(chan struct{}),
		letGo:    make(chan struct{}),
		state:    Running,
	}
	if request.StdinOpen {
		job.stdin = newInput(request.Stdin)
	}
	return job
}

// Changed returns a channel that is closed when there is more output or the job has ended.
func (j *Job) Changed() <-chan struct{} { return j.changed.wait() }

// Stdout returns the standard output.
func (j *Job) Stdout() *output.Buffer { return j.stdout }

// Stderr returns the standard error.
func (j *Job) Stderr() *output.Buffer { return j.stderr }

// Cancel requests the end of every process of the job and returns at once. It has no effect on a job that has ended.
func (j *Job) Cancel() { j.cancelOnce.Do(func() { close(j.canceled) }) }

// LetGo returns a channel that is closed when the machine lets go of the job, because it resumed from a memory snapshot
// as another machine.
func (j *Job) LetGo() <-chan struct{} { return j.letGo }

// release lets go of the job. Its pumps keep reading and drop the output, so that its processes neither block on a full
// pipe nor are killed for writing to a closed one.
func (j *Job) release() {
	close(j.letGo)
	j.endInput()
	j.stdout.Drop()
	j.stderr.Drop()
	j.freed.fire()
}

// endInput closes the standard input if it is open.
func (j *Job) endInput() {
	if j.stdin != nil {
		j.stdin.leave(inputOver)
	}
}

// signalFirst sends a signal to the first process of the job. It has no effect when that process has ended.
func (j *Job) signalFirst(sig syscall.Signal) error {
	if j.signalProcess == nil {
		return nil
	}
	if err := j.signalProcess(sig); err != nil && err != syscall.ESRCH {
		return internal("signal", err)
	}
	return nil
}

// Acknowledge frees the output below these offsets, because the host has stored it.
func (j *Job) Acknowledge(stdout, stderr int64) error {
	defer j.freed.fire()
	if err := j.stdout.Acknowledge(stdout); err != nil {
		return invalid("stdout: " + err.Error())
	}
	if err := j.stderr.Acknowledge(stderr); err != nil {
		return invalid("stderr: " + err.Error())
	}
	return nil
}

// Ended reports whether the job has ended and all its output has arrived.
func (j *Job) Ended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state != Running
}

// Status returns the present status of the job.
func (j *Job) Status() Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	status := Status{
		ID:            j.id,
		State:         j.state,
		ExitCode:      j.exitCode,
		Signal:        j.signal,
		StartedUnixMs: j.started.UnixMilli(),
	}
	if j.state != Running {
		finished := j.finished.UnixMilli()
		status.FinishedUnixMs = &finished
	}
	var cutOut, cutErr bool
	_, status.StdoutBytes, cutOut = j.stdout.Extent()
	_, status.StderrBytes, cutErr = j.stderr.Extent()
	status.Truncated = cutOut || cutErr
	if j.stdin != nil {
		accepted := j.stdin.progress().NextOffset
		status.StdinBytes = &accepted
	}
	return status
}

// running is a started job, together with what supervise needs to wait for it and to end it.
type running struct {
	*Job
	process process.Owner
	pid     int
	exit    <-chan syscall.WaitStatus
	group   process.Group
	pumps   []*pump
	timeout time.Duration // zero: none
}

// supervise waits for the end of the job and records it. If the machine is powering off (abandoned is closed), it
// records nothing. If the machine let go of the job, it removes the job's control group as soon as the group is empty.
func (r *running) supervise(abandoned <-chan struct{}) {
	state, status := r.awaitEnd()
	select {
	case <-abandoned:
		return
	case <-r.letGo:
		r.group.AwaitEmpty(-1)
		r.group.Remove()
		return
	default:
	}
	r.endInput()
	for _, p := range r.pumps {
		p.stop()
	}
	for _, p := range r.pumps {
		<-p.drained
	}
	r.finish(state, status)
	runtime.Gosched() // lets the call tell the host of the end first, most times
	r.group.Dissolve()
}

func (r *running) awaitEnd() (State, syscall.WaitStatus) {
	var expired <-chan time.Time
	if r.timeout > 0 {
		timer := time.NewTimer(r.timeout)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case status := <-r.exit:
		return Exited, status
	case <-r.canceled:
		return Canceled, r.group.Terminate(r.process, r.pid, r.exit, syscall.SIGTERM)
	case <-expired:
		return TimedOut, r.group.Terminate(r.process, r.pid, r.exit, syscall.SIGTERM)
	case <-r.letGo:
		return Running, 0
	}
}

func (j *Job) finish(state State, status syscall.WaitStatus) {
	j.mu.Lock()
	j.finished = time.Now()
	j.state = state
	if status.Signaled() {
		name := process.SignalName(status.Signal())
		j.signal = &name
	} else {
		code := status.ExitStatus()
		j.exitCode = &code
	}
	j.mu.Unlock()
	j.changed.fire()
}

// fail ends a job whose program could not be run. The exit code and the message are like those of a shell.
func (j *Job) fail(name string, exitCode int, text string) {
	stream := j.stderr
	if j.merged {
		stream = j.stdout
	}
	_, _ = stream.Append([]byte("sandbar: " + name + ": " + text + "\n")) // cannot fail: the stream is empty
	stream.Seal()
	j.endInput()
	j.finish(Exited, syscall.WaitStatus(exitCode<<8))
}

func (j *Job) close() {
	j.stdout.Close()
	j.stderr.Close()
}
