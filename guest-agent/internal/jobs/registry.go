// Package jobs runs commands in the machine. It keeps their output and exit status until the host has received both,
// also when the connection to the host breaks.
package jobs

import (
	"cmp"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/output"
	"sandbar/guest-agent/internal/process"
	"sandbar/guest-agent/internal/reaper"
	"sandbar/guest-agent/internal/workers"
)

// Config is what a registry needs from its machine.
type Config struct {
	CgroupDirectory string // on a cgroup2 file system; made if missing
	SpillDirectory  string // for output beyond the memory limit; made when needed
	Reaper          *reaper.Reaper
	Gate            *freeze.Gate // of the file system that the spill directory is on
}

// Registry holds all jobs that the host has not deleted yet.
type Registry struct {
	config Config
	groups *process.Spares

	abandoned   chan struct{} // closed when the machine ends
	abandonOnce sync.Once

	starting sync.Mutex // held while a job is made, so that an id is never started twice
	mu       sync.Mutex
	jobs     map[string]*Job
}

// NewRegistry returns an empty registry and makes the control group for its jobs.
func NewRegistry(config Config) (*Registry, error) {
	groups, err := process.MakeGroups(config.CgroupDirectory)
	if err != nil {
		return nil, err
	}
	return &Registry{
		config:    config,
		groups:    process.NewSpares(groups, "job-"),
		abandoned: make(chan struct{}),
		jobs:      make(map[string]*Job),
	}, nil
}

// Put starts a job and returns it. If a job with this id exists, it returns that job, with created false, and starts
// nothing. After an error there is no new job.
func (r *Registry) Put(id string, request *Request) (job *Job, created bool, err error) {
	r.starting.Lock()
	defer r.starting.Unlock()
	if job, err := r.Get(id); err == nil {
		return job, false, nil
	}
	if job, err = r.start(id, request); err != nil {
		return nil, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs[id] = job
	return job, true, nil
}

// Get returns the job with this id, or an error if there is none.
func (r *Registry) Get(id string) (*Job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if job, ok := r.jobs[id]; ok {
		return job, nil
	}
	return nil, fault.New(fault.NotFound, "no such job")
}

// List returns all jobs, the oldest first.
func (r *Registry) List() []*Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*Job, 0, len(r.jobs))
	for _, job := range r.jobs {
		list = append(list, job)
	}
	slices.SortFunc(list, func(a, b *Job) int {
		return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.id, b.id))
	})
	return list
}

// Delete removes an ended job and its output.
func (r *Registry) Delete(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	job, ok := r.jobs[id]
	if !ok {
		return fault.New(fault.NotFound, "no such job")
	}
	if !job.Ended() {
		return fault.New(fault.Conflict, "the job is running")
	}
	delete(r.jobs, id)
	job.close()
	return nil
}

// DeleteAll removes every job. It fails if a job is still running.
func (r *Registry) DeleteAll() error {
	for _, job := range r.List() {
		if err := r.Delete(job.id); err != nil {
			return err
		}
	}
	return nil
}

// LetGo forgets every job, because the machine has resumed from a memory snapshot as another machine. The processes of
// the jobs go on without a time limit, their output is dropped, and their ids are free for new jobs.
func (r *Registry) LetGo() {
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, job := range r.jobs {
		job.release()
	}
	clear(r.jobs)
}

// Abandon stops recording how jobs end. It is called when the machine powers off: the power-off ends the jobs, so the
// host must report them as lost and not as failed.
func (r *Registry) Abandon() { r.abandonOnce.Do(func() { close(r.abandoned) }) }

// Close drops all output and closes its files, so that the disk can be unmounted.
func (r *Registry) Close() {
	for _, job := range r.List() {
		job.close()
	}
}

// start makes a job and starts its process.
func (r *Registry) start(id string, request *Request) (*Job, error) {
	program, err := resolve(request)
	if err != nil {
		return nil, err
	}
	job := newJob(id, request, &r.config)
	if program.failure != 0 {
		job.fail(program.Argv[0], program.failure, process.FailureText(program.failure))
		return job, nil
	}
	timeout := time.Duration(request.TimeoutSec * float64(time.Second))
	if err := r.launch(job, program, request.Stdin, timeout); err != nil {
		if code, text, ok := process.ExecFailure(err); ok {
			job.fail(program.Argv[0], code, text)
			return job, nil
		}
		return nil, internal("start", err)
	}
	return job, nil
}

// launch starts the process with its pipes and control group. It returns an error of exec unchanged, because the caller
// passes it to process.ExecFailure.
func (r *Registry) launch(job *Job, program *program, stdin []byte, timeout time.Duration) (err error) {
	group, directory, err := r.groups.Take()
	if err != nil {
		return err
	}
	defer directory.Close()
	var files stdio
	defer files.close()
	pumps, err := r.openStdio(job, &files, stdin)
	if err == nil {
		run := &running{Job: job, process: r.config.Reaper, group: group, pumps: pumps, timeout: timeout}
		if run.pid, run.exit, err = program.start(r.config.Reaper, &files, directory); err == nil {
			job.signalProcess = func(sig syscall.Signal) error { return r.config.Reaper.Signal(run.pid, sig) }
			for _, p := range pumps {
				workers.Go(p.run)
			}
			workers.Go(func() {
				run.supervise(r.abandoned)
				r.groups.Refill()
			})
			return nil
		}
	}
	group.Remove()
	job.endInput()
	for _, p := range pumps {
		_ = p.pipe.Close() // nothing was ever written to it
	}
	return err
}

// openStdio opens the files that become the descriptors 0 to 2 of the process. It returns a pump for each output pipe,
// even when it also returns an error.
func (r *Registry) openStdio(job *Job, files *stdio, stdin []byte) (pumps []*pump, err error) {
	if job.stdin != nil {
		files[0], err = job.stdin.open(stdin)
	} else {
		files[0], err = openInput(stdin)
	}
	if err != nil {
		return nil, err
	}
	open := func(buffer *output.Buffer) (*os.File, error) {
		p, writer, err := newPump(buffer, r.config.Gate, &job.changed, &job.freed)
		if err == nil {
			pumps = append(pumps, p)
		}
		return writer, err
	}
	if files[1], err = open(job.stdout); err != nil {
		return pumps, err
	}
	if job.merged {
		files[2] = files[1] // one pipe keeps the order in which both were written
		job.stderr.Seal()
		return pumps, nil
	}
	files[2], err = open(job.stderr)
	return pumps, err
}
