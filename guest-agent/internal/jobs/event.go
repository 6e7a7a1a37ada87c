package jobs

import "sync"

// event wakes everybody who waits for something to change. It costs nothing while nobody waits.
type event struct {
	mu   sync.Mutex
	next chan struct{}
}

// wait returns a channel that the next fire closes. Take it before looking at what may change.
func (e *event) wait() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next == nil {
		e.next = make(chan struct{})
	}
	return e.next
}

func (e *event) fire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next != nil {
		close(e.next)
		e.next = nil
	}
}
