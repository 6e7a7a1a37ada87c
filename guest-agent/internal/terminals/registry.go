// Package terminals runs login shells and other programs on pseudo-terminals. A terminal outlives the connections to it:
// it keeps the last part of its output, and a later connection continues where an earlier one ended.
package terminals

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/freeze"
	"sandbar/guest-agent/internal/process"
	"sandbar/guest-agent/internal/reaper"
)

const (
	// maxRunning is how many terminals a machine has at most.
	maxRunning = 64
	// maxEnded is how many ended terminals are kept at most.
	maxEnded = 64
)

// Config is what a registry needs from its machine.
type Config struct {
	CgroupDirectory string // on a cgroup2 file system; made if missing. It may be that of the jobs
	Reaper          *reaper.Reaper
	Gate            *freeze.Gate // shut while the root file system is frozen
	StartGate       *freeze.Gate // shut while the processes are frozen

	KeepEnded time.Duration // how long an ended terminal is kept; 0: 60 s
	Stall     time.Duration // how long a connection may take no output while there is some; 0: 10 s
}

// Registry holds the terminals that run, and for a short time those that have ended.
type Registry struct {
	config Config
	groups process.Groups

	abandoned   chan struct{} // closed when the machine ends
	abandonOnce sync.Once

	starting  sync.Mutex // held while a terminal is made, so that an id is never started twice
	mu        sync.Mutex
	terminals map[string]*terminal
}

// NewRegistry returns an empty registry and makes the control group for its terminals.
func NewRegistry(config Config) (*Registry, error) {
	config.KeepEnded = cmp.Or(config.KeepEnded, time.Minute)
	config.Stall = cmp.Or(config.Stall, 10*time.Second)
	groups, err := process.MakeGroups(config.CgroupDirectory)
	if err != nil {
		return nil, err
	}
	return &Registry{
		config:    config,
		groups:    groups,
		abandoned: make(chan struct{}),
		terminals: make(map[string]*terminal),
	}, nil
}

// LetGo forgets every terminal, because the machine has resumed from a memory snapshot as another machine. Their
// processes go on, nobody can connect to them any more, and their output is dropped.
func (r *Registry) LetGo() {
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.terminals {
		t.release()
	}
	clear(r.terminals)
}

// Abandon hangs up every terminal, and stops recording how terminals end. It is called before the machine powers off,
// because interactive shells ignore the TERM with which a power-off begins, and would delay it.
func (r *Registry) Abandon() {
	r.abandonOnce.Do(func() { close(r.abandoned) })
	for _, t := range r.list() {
		t.hangUp()
	}
}

// open starts a terminal. It has no effect if a terminal with this id exists, even if that has ended.
func (r *Registry) open(ctx context.Context, request *openRequest) error {
	if err := r.config.Gate.Await(ctx); err != nil {
		return err
	}
	if err := r.config.StartGate.EnterOpen(ctx); err != nil {
		return err
	}
	defer r.config.StartGate.Leave()
	r.starting.Lock()
	defer r.starting.Unlock()
	if _, err := r.get(request.ID); err == nil {
		return nil
	}
	if len(r.list()) >= maxRunning {
		return fault.New(fault.Conflict, "the machine has 64 terminals, which is the limit")
	}
	t, err := r.start(request)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.terminals[t.id] = t
	r.mu.Unlock()
	go r.follow(t)
	return nil
}

// start makes a terminal and starts its program. If the program cannot be run, start returns a terminal that has
// already ended. Its output and exit code are the error message and the exit code that a shell would give.
func (r *Registry) start(request *openRequest) (*terminal, error) {
	program, failure, err := request.find()
	if err != nil {
		return nil, err
	}
	t := newTerminal(request)
	if len(request.Command) == 0 {
		t.command = []string{program.Path}
	}
	if failure != 0 {
		t.fail(program.Argv[0], failure, process.FailureText(failure))
		return t, nil
	}
	if err := r.launch(t, program); err != nil {
		code, text, ok := process.ExecFailure(err)
		if !ok {
			return nil, fault.New(fault.Internal, "start: "+err.Error())
		}
		t.fail(program.Path, code, text)
	}
	return t, nil
}

// launch starts the program on a new pseudo-terminal, in its own control group.
func (r *Registry) launch(t *terminal, program *process.Program) error {
	group, directory, err := r.groups.Make("terminal-" + t.id)
	if err != nil {
		return err
	}
	defer directory.Close()
	line, err := openPTY(&program.Account, t.size)
	if err != nil {
		group.Remove()
		return err
	}
	pid, exit, err := program.Start(r.config.Reaper, line.descriptors(), directory, line.session())
	if err != nil {
		group.Remove()
		return errors.Join(err, line.close())
	}
	t.pty = line
	run := &running{terminal: t, owner: r.config.Reaper, pid: pid, exit: exit, group: group}
	t.running = run
	go t.pump(line)
	go run.supervise(r.abandoned)
	return nil
}

// follow removes the terminal some time after its end.
func (r *Registry) follow(t *terminal) {
	select {
	case <-t.ended:
	case <-t.letGo:
		return
	}
	r.mu.Lock()
	r.dropOldEnded()
	r.mu.Unlock()
	time.AfterFunc(r.config.KeepEnded, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.terminals[t.id] == t {
			delete(r.terminals, t.id)
		}
	})
}

// dropOldEnded removes the terminals that ended first if too many ended ones are kept. The caller holds r.mu.
func (r *Registry) dropOldEnded() {
	var ended []*terminal
	for _, t := range r.terminals {
		if t.hasEnded() {
			ended = append(ended, t)
		}
	}
	slices.SortFunc(ended, func(a, b *terminal) int { return a.finished().Compare(b.finished()) })
	for len(ended) > maxEnded {
		delete(r.terminals, ended[0].id)
		ended = ended[1:]
	}
}

// get returns the terminal with this id, also one that has ended, or an error if there is none.
func (r *Registry) get(id string) (*terminal, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.terminals[id]; ok {
		return t, nil
	}
	return nil, errAbsent
}

var errAbsent = fault.New(fault.NotFound, "no such terminal")

// list returns the terminals that run, the oldest first.
func (r *Registry) list() []*terminal {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*terminal
	for _, t := range r.terminals {
		if !t.hasEnded() {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *terminal) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.id, b.id))
	})
	return list
}
