package freeze

import (
	"context"
	"sync"
)

// Gate keeps the agent itself from what is frozen: a write to a frozen file system would hang in the kernel with
// whatever lock its caller holds, and the call that thaws might need that lock. The zero value is open.
type Gate struct {
	users  sync.RWMutex // held for reading by those inside
	mu     sync.Mutex
	isShut bool
	opens  chan struct{} // closed by the next open; nil: nobody waits
	later  []func()
}

// Enter reports whether the gate is open, and keeps it open until Leave. It never waits.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isShut {
		return false
	}
	g.users.RLock()
	return true
}

// EnterOpen waits for an open gate and enters. On an error of the context it has not.
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

// Leave ends what Enter began.
func (g *Gate) Leave() { g.users.RUnlock() }

// Later runs write while the gate is open: at once, or after the thaw.
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

// Opened returns a channel that is closed when a shut gate opens. Take it before trying to enter.
func (g *Gate) Opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opens == nil {
		g.opens = make(chan struct{})
	}
	return g.opens
}

// Await returns once the gate is open, or with the error of the context.
func (g *Gate) Await(ctx context.Context) error {
	if err := g.EnterOpen(ctx); err != nil {
		return err
	}
	g.Leave()
	return nil
}

// shut lets nobody in any more and returns when nobody is inside.
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
