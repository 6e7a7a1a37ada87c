// A terminal has one goroutine that owns its main process from start to end, and a pump that reads the pseudo-terminal.
// Its states are running, ended and forgotten. What leads from one state to the next:
//
//	running --main process exits--> read what it wrote --------------------------> ended --60 s--> forgotten
//	   |---end, or idle----> HUP to all, 5 s, KILL, read what they wrote -----------^
//
// A machine that is made from a memory snapshot lets go of its terminals: their processes live on until they end by
// themselves, nobody can connect to them, and their output is dropped.

package terminals

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sandbar/guest-agent/internal/process"
)

// terminal is a pseudo-terminal with the program that runs on it.
type terminal struct {
	id      string
	created time.Time
	command []string
	idle    time.Duration // the terminal ends when it had no connection for this long

	pty     *pty     // nil if the program could not be started
	running *running // nil if the program could not be started

	prod    chan struct{} // wakes the pump
	isTyped atomic.Bool   // somebody has typed since the pump last looked
	turn    chan struct{} // holds a value while a connection writes its input
	exited  chan struct{} // closed when the main process has ended
	drained chan struct{} // closed when the pump has stored what the processes wrote before that
	ended   chan struct{} // closed after that, when the result is known
	letGo   chan struct{} // closed when the machine lets go of the terminal

	endOnce sync.Once
	ending  chan struct{} // closed when somebody wants the terminal to end

	mu          sync.Mutex
	size        size
	output      ring
	connections map[*connection]struct{}
	idleTimer   *time.Timer
	isReleased  bool
	result      *result // nil until the terminal has ended
	endedAt     time.Time
}

// result says how the main process ended: with an exit code or by a signal.
type result struct {
	ExitCode *int    `json:"exit_code"`
	Signal   *string `json:"signal"`
}

func newTerminal(request *openRequest) *terminal {
	t := &terminal{
		id:          request.ID,
		created:     time.Now().UTC().Truncate(time.Millisecond),
		command:     request.listed(),
		idle:        request.idle(),
		prod:        make(chan struct{}, 1),
		turn:        make(chan struct{}, 1),
		exited:      make(chan struct{}),
		drained:     make(chan struct{}),
		ended:       make(chan struct{}),
		letGo:       make(chan struct{}),
		ending:      make(chan struct{}),
		size:        request.size,
		connections: make(map[*connection]struct{}),
	}
	t.idleTimer = time.AfterFunc(t.idle, t.endIfIdle)
	return t
}

// end requests the end of every process of the terminal and returns at once. It has no effect on an ended terminal.
func (t *terminal) end() { t.endOnce.Do(func() { close(t.ending) }) }

func (t *terminal) endIfIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.connections) == 0 && !t.isReleased {
		t.end()
	}
}

func (t *terminal) hasEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result != nil
}

func (t *terminal) finished() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endedAt
}

// resize sets the size of the screen. It has no effect on an ended terminal.
func (t *terminal) resize(to size) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.result != nil || t.isReleased {
		return nil
	}
	t.size = to
	return t.pty.resize(to)
}

// release lets go of the terminal: it drops the output and cuts all connections.
func (t *terminal) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isReleased = true
	t.idleTimer.Stop()
	t.output.drop()
	close(t.letGo)
}

// fail ends a terminal whose program could not be run. The exit code and the message are like those of a shell.
func (t *terminal) fail(name string, exitCode int, text string) {
	t.keep([]byte("sandbar: " + name + ": " + text + "\r\n"))
	t.finish(syscall.WaitStatus(exitCode << 8))
}

func (t *terminal) finish(status syscall.WaitStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idleTimer.Stop()
	t.result = new(result)
	if status.Signaled() {
		name := process.SignalName(status.Signal())
		t.result.Signal = &name
	} else {
		code := status.ExitStatus()
		t.result.ExitCode = &code
	}
	t.endedAt = time.Now()
	close(t.ended)
	t.wakeConnections()
}

// running is the main process of a terminal, together with what supervise needs to wait for it and to end it.
type running struct {
	*terminal
	owner process.Owner
	pid   int
	exit  <-chan syscall.WaitStatus
	group process.Group
}

// supervise waits for the end of the main process and records it. Programs that are left in the background lose the
// terminal, as they do when a remote login ends, and go on. If the machine is powering off (abandoned is closed),
// supervise records nothing.
func (r *running) supervise(abandoned <-chan struct{}) {
	status := r.awaitEnd()
	select {
	case <-abandoned:
		return
	default:
	}
	close(r.exited)
	_ = r.pty.outer.SetReadDeadline(time.Unix(1, 0)) // fails only if the file is closed
	<-r.drained
	_ = r.pty.close()
	r.group.Dissolve()
	r.finish(status)
}

func (r *running) awaitEnd() syscall.WaitStatus {
	select {
	case status := <-r.exit:
		return status
	case <-r.ending:
		return r.group.Terminate(r.owner, r.pid, r.exit, syscall.SIGHUP, syscall.SIGCONT) // a stopped process handles HUP only after CONT
	case <-r.letGo:
		return <-r.exit
	}
}

// hangUp sends HUP to every process of the terminal.
func (t *terminal) hangUp() {
	if t.running != nil {
		t.running.group.Signal(syscall.SIGHUP)
	}
}
