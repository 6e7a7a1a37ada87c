package api

import (
	"errors"
	"testing"
	"time"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/identity"
)

func TestAJobWaitsUntilTheIdentityIsComplete(t *testing.T) {
	s := &server{Machine: Machine{Identity: identity.New(nil)}}
	s.completing.Lock()
	started := make(chan error)
	go func() {
		_, _, err := s.startJob("job", []byte(`{"command": "true"}`))
		started <- err
	}()
	select {
	case err := <-started:
		t.Fatal("it did not wait: ", err)
	case <-time.After(50 * time.Millisecond): // long enough for a job that does not wait
	}
	s.completing.Unlock()
	known := new(fault.Error)
	if err := <-started; !errors.As(err, &known) || known.Code != fault.Conflict {
		t.Error(err)
	}
}
