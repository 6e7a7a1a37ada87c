package workers

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// await waits until the pool has n idle goroutines.
func (p *pool) await(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		idle := len(p.idle)
		p.mu.Unlock()
		if idle == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d idle goroutines, want %d", idle, n)
		}
	}
}

// self returns the header of this goroutine's stack, which has its number.
func self() string {
	space := make([]byte, 64)
	header, _, _ := strings.Cut(string(space[:runtime.Stack(space, false)]), "[")
	return header
}

func TestAnIdleGoroutineIsUsedAgain(t *testing.T) {
	p, ran := new(pool), make(chan string)
	p.run(func() { ran <- self() })
	first := <-ran
	p.await(t, 1)
	p.run(func() { ran <- self() })
	if second := <-ran; second != first {
		t.Errorf("%q and then %q", first, second)
	}
}

func TestEachFunctionRunsAtOnceAndOnce(t *testing.T) {
	p := new(pool)
	for range 3 {
		var all sync.WaitGroup
		all.Add(50)
		for range 50 {
			p.run(func() {
				all.Done()
				all.Wait() // returns only if all 50 run at the same time
			})
		}
		all.Wait()
		p.await(t, maxIdle) // the others have ended
	}
}
