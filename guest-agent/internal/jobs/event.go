package jobs

import "sync"

// event wakes all goroutines that wait for a change. It needs no memory while none waits.
type event struct {
	mu   sync.Mutex
	next chan struct{}
}

// wait returns a channel that the next fire closes. Call it before you read the state that may change, so that no
// change is missed.
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
