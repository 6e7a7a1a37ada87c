// Package workers runs functions on reused goroutines. A new goroutine has a small stack, which the runtime copies
// again and again while it grows. Under emulation that was a quarter of what the agent did for a short job, and a clone
// had to translate the code for it. The warm-up of a template leaves goroutines with large stacks behind, and the
// functions of each clone run on those. The agent is built with gcshrinkstackoff=1, or else the garbage collector would
// make the stacks small again.
package workers

import (
	"os"
	"sync"
)

// maxIdle is how many goroutines wait for work at most. A short job needs five at once: its call, two pipes of output,
// its supervisor, and the call that deletes it.
const maxIdle = 8

// pool holds the idle goroutines. Each waits for the next function on a channel of its own.
type pool struct {
	mu   sync.Mutex
	idle []chan func() // the last one was busy last, so its stack is most likely in the processor's cache
}

var shared pool

// Go runs f on an idle goroutine, or on a new one when none is idle. f must not panic.
func Go(f func()) { shared.run(f) }

func (p *pool) run(f func()) {
	p.mu.Lock()
	last := len(p.idle) - 1
	if last < 0 {
		p.mu.Unlock()
		go p.work(f)
		return
	}
	worker := p.idle[last]
	p.idle = p.idle[:last]
	p.mu.Unlock()
	worker <- f
}

// stackSize is how much stack a goroutine gets at its start, in bytes. It is more than a create and its first jobs need.
const stackSize = 16 << 10

// growStack makes the runtime enlarge the stack once, while there is next to nothing on it to copy.
//
//go:noinline
func growStack() byte {
	var space [stackSize]byte
	return space[len(os.Args)] // the compiler does not know the index, so it cannot leave the array out
}

// work runs f, and then what run sends it, until enough other goroutines are idle.
func (p *pool) work(f func()) {
	growStack()
	next := make(chan func(), 1) // run never waits for the goroutine
	for {
		f()
		f = nil // keeps nothing of the function alive while the goroutine waits
		p.mu.Lock()
		if len(p.idle) == maxIdle {
			p.mu.Unlock()
			return
		}
		p.idle = append(p.idle, next)
		p.mu.Unlock()
		f = <-next
	}
}
