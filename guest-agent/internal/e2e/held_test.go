package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"sandbar/guest-agent/internal/channel"
	"sandbar/guest-agent/internal/freeze"
)

// In a machine made from a memory snapshot, all processes are held for a limited time. If that time ends before the new
// identity arrives, the agent must refuse the identity.
func TestAnIdentityIsRefusedWhenHeldProcessesWentOnBefore(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	h.send(ctx, "PUT", "/jobs/j", map[string]any{"command": "exec sleep 1000"})
	h.expect(204, "POST", "/hold", map[string]any{"timeout_ms": 1})
	eventually(t, "they go on by themselves", a.startGate.Enter)
	a.startGate.Leave()
	response, err := a.identifyInVain(ctx, t, h)
	if err != nil {
		t.Fatal(err)
	}
	if response.code != 409 {
		t.Errorf("status %d", response.code)
	}
	if got := h.expect(200, "GET", "/healthz", nil); !strings.Contains(got, `"identity":"machine-1"`) {
		t.Error(got)
	}
	if got := h.expect(200, "GET", "/jobs", nil); !strings.Contains(got, `"id":"j"`) {
		t.Errorf("its jobs were let go: %s", got)
	}
}

// A machine that is made from a memory snapshot gets a channel token of its own while its processes are held.
func TestAnotherTokenIsTakenWhileProcessesAreHeld(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	other := channel.Token([]byte("fedcba9876543210fedcba9876543210"))
	h.expect(204, "POST", "/hold", map[string]any{"timeout_ms": 60000})
	h = newHost(t, a.port, other)
	h.expect(204, "POST", "/release", nil)
	h.expect(200, "GET", "/healthz", nil)
	newHost(t, a.port, other).expect(200, "GET", "/healthz", nil)
}

func TestHeldProcessesStayHeldWhenTheIdentityFails(t *testing.T) {
	a := startAgent(t)
	h := a.connect(t)
	h.expect(204, "POST", "/hold", map[string]any{"timeout_ms": 60000})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if response, err := a.identifyInVain(ctx, t, h); err == nil {
		t.Errorf("status %d", response.code)
	}
	h.expect(204, "POST", "/release", nil)
}

// identifyInVain sends the identity of a machine made from a memory snapshot. It first shuts the gate of the root file
// system, so that the agent never applies the identity to the computer that runs the test.
func (a *agent) identifyInVain(ctx context.Context, t *testing.T, h *host) (*response, error) {
	t.Helper()
	freezer := freeze.Pretended(a.gate)
	if err := freezer.Freeze(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	identity := identityOf("another")
	identity["was_held"] = true
	return h.try(ctx, "PUT", "/identity", identity)
}
