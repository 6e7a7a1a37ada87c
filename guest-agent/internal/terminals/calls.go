package terminals

import (
	"context"
	"time"

	"sandbar/guest-agent/internal/calls"
)

// Calls returns the guest calls of terminals. The README of the guest agent describes them.
func (r *Registry) Calls() map[string]calls.Call {
	return map[string]calls.Call{
		"terminals.open":   r.callOpen,
		"terminals.list":   r.callList,
		"terminals.resize": r.callResize,
		"terminals.end":    r.callEnd,
	}
}

// Streams returns the guest streams of terminals.
func (r *Registry) Streams() map[string]calls.Stream {
	return map[string]calls.Stream{"terminals.attach": r.attach}
}

// done is the answer of a call that returns no data.
type done struct{}

type openAnswer struct {
	ID string `json:"id"`
}

func (r *Registry) callOpen(ctx context.Context, params []byte) (any, error) {
	request, err := parseOpen(params)
	if err != nil {
		return nil, err
	}
	if err := r.open(ctx, request); err != nil {
		return nil, err
	}
	return openAnswer{request.ID}, nil
}

type listAnswer struct {
	Terminals []listed `json:"terminals"`
}

type listed struct {
	ID          string    `json:"id"`
	CreatedAt   time.Time `json:"created_at"`
	Connections int       `json:"connections"`
	size
	Command []string `json:"command"`
}

func (r *Registry) callList(context.Context, []byte) (any, error) {
	answer := listAnswer{Terminals: []listed{}}
	for _, t := range r.list() {
		t.mu.Lock()
		answer.Terminals = append(answer.Terminals, listed{t.id, t.created, len(t.connections), t.size, t.command})
		t.mu.Unlock()
	}
	return answer, nil
}

func (r *Registry) callResize(_ context.Context, params []byte) (any, error) {
	var request struct {
		ID string `json:"id"`
		size
	}
	if err := parse(params, &request); err != nil {
		return nil, err
	}
	if err := request.size.check(); err != nil {
		return nil, err
	}
	t, err := r.get(request.ID)
	if err != nil {
		return nil, err
	}
	return done{}, t.resize(request.size)
}

// callEnd ends a terminal and answers when it has ended.
func (r *Registry) callEnd(ctx context.Context, params []byte) (any, error) {
	var request struct {
		ID string `json:"id"`
	}
	if err := parse(params, &request); err != nil {
		return nil, err
	}
	t, err := r.get(request.ID)
	if err != nil {
		return nil, err
	}
	t.end()
	select {
	case <-t.ended:
		return done{}, nil
	case <-t.letGo:
		return nil, errAbsent
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *Registry) attach(ctx context.Context, params []byte, open func(head any) (calls.Conn, error)) (any, error) {
	var request struct {
		ID     string `json:"id"`
		Offset *int64 `json:"offset"`
	}
	if err := parse(params, &request); err != nil {
		return nil, err
	}
	t, err := r.get(request.ID)
	if err != nil {
		return nil, err
	}
	c, head, err := t.join(request.Offset)
	if err != nil {
		return nil, err
	}
	defer t.leave(c)
	conn, err := open(head)
	if err != nil {
		return nil, err
	}
	return t.serve(ctx, c, conn, r.config.Stall)
}
