package freeze

import (
	"context"
	"sync"
)

// Gate keeps the agent itself from using the root file system while that is frozen, or from starting a process while
// all processes are frozen. Without it, a write of the agent to the frozen file system would hang in the kernel while
// its caller holds locks, and the thaw might need one of these locks. The zero value is open.
type Gate struct {
	users  sync.RWMutex // each caller between Enter and Leave holds a read lock
	mu     sync.Mutex
	isShut bool
	opens  chan struct{} // closed when the gate opens; nil when nobody waits
	later  []func()      // functions to run when the gate opens
}

// Enter reports whether the gate is open. If so, the gate stays open until the caller calls Leave. Enter never waits.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isShut {
		return false
	}
	g.users.RLock()
	return true
}

// IsShut reports whether the gate is shut.
func (g *Gate) IsShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isShut
}

// EnterOpen waits until the gate is open and enters. If it returns the error of the context, it has not entered.
func (g *Gate) EnterOpen(ctx context.Context) error {
	for {
		opened := g.Opened()
		if g.Enter() {
			return nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Leave must follow each successful Enter or EnterOpen.
func (g *Gate) Leave() { g.users.RUnlock() }

// Later runs write at once if the gate is open, else as soon as it opens. It does not wait for that.
func (g *Gate) Later(write func()) {
	g.mu.Lock()
	if g.isShut {
		g.later = append(g.later, write)
		g.mu.Unlock()
		return
	}
	g.users.RLock()
	g.mu.Unlock()
	defer g.Leave()
	write()
}

// Opened returns a channel that is closed when a shut gate opens. Call it before Enter, so that no opening is missed.
func (g *Gate) Opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opens == nil {
		g.opens = make(chan struct{})
	}
	return g.opens
}

// Await waits until the gate is open. It returns the error of the context if that ends first.
func (g *Gate) Await(ctx context.Context) error {
	if err := g.EnterOpen(ctx); err != nil {
		return err
	}
	g.Leave()
	return nil
}

// shut makes every later Enter fail, and waits until all who have entered have left.
func (g *Gate) shut() {
	g.mu.Lock()
	g.isShut = true
	g.mu.Unlock()
	g.users.Lock()
}

func (g *Gate) open() {
	g.mu.Lock()
	g.isShut = false
	opens, later := g.opens, g.later
	g.opens, g.later = nil, nil
	g.users.Unlock()
	g.mu.Unlock()
	if opens != nil {
		close(opens)
	}
	for _, write := range later {
		g.Later(write)
	}
}
