package api

import (
	"encoding/json"
	"errors"
	"maps"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/frames"
)

// Feature is a part of the agent that serves guest calls and guest streams, each under a name of its own.
type Feature interface {
	Calls() map[string]calls.Call
	Streams() map[string]calls.Stream
}

// guestCalls holds the calls and streams of all features.
type guestCalls struct {
	calls   map[string]calls.Call
	streams map[string]calls.Stream
}

func join(features []Feature) guestCalls {
	joined := guestCalls{calls: map[string]calls.Call{}, streams: map[string]calls.Stream{}}
	for _, feature := range features {
		maps.Copy(joined.calls, feature.Calls())
		maps.Copy(joined.streams, feature.Streams())
	}
	return joined
}

var errNoIdentity = fault.New(fault.Conflict, "the machine has no identity yet")

// maxStreams is how many guest streams may be open at once. Clients choose how many they open, so the other calls of a
// session are left for the host's own requests and the output of jobs.
const maxStreams = 210

var errManyStreams = fault.New(fault.Conflict, "the machine has 210 open streams (terminals, transfers, ports), which is the limit")

// find returns the guest call or guest stream with this name. If there is none, or the machine has no identity, it
// answers c with the error and returns false.
func find[T calls.Call | calls.Stream](s *server, c *frames.Call, named map[string]T, name string) (T, bool) {
	found, ok := named[name]
	if !ok {
		answerUnknown(c)
		return nil, false
	}
	if s.Identity.MachineID() == "" {
		answerError(c, errNoIdentity)
		return nil, false
	}
	return found, true
}

func (s *server) postCall(c *frames.Call, name string) {
	call, ok := find(s, c, s.guest.calls, name)
	if !ok {
		return
	}
	result, err := call(c.Context(), c.Body)
	if err != nil {
		answerError(c, err)
		return
	}
	answer(c, statusOK, result)
}

// streamEnd is the last message of a stream: its result, or why it failed.
type streamEnd struct {
	Result any        `json:"result,omitempty"`
	Error  *errorBody `json:"error,omitempty"`
}

func (s *server) postStream(c *frames.Call, name string) {
	stream, ok := find(s, c, s.guest.streams, name)
	if !ok {
		return
	}
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		answerError(c, errManyStreams)
		return
	}
	defer s.streams.Add(-1)
	hasBegun := false
	result, err := stream(c.Context(), c.Body, func(head any) (calls.Conn, error) {
		content, err := marshal(head, frames.MaxHead)
		if err != nil {
			return nil, err
		}
		conn, err := c.BeginDuplex(statusOK, content)
		if err != nil {
			return nil, err
		}
		hasBegun = true
		return conn, nil
	})
	if !hasBegun {
		if err == nil {
			err = errors.New("the stream ended before it began")
		}
		answerError(c, err)
		return
	}
	c.End(endOf(result, err))
}

// maxEndDetail is the size of the longest error text in the end of a stream, in bytes. JSON may need six bytes for each.
const maxEndDetail = 512

func endOf(result any, err error) []byte {
	if err == nil {
		var content []byte
		if content, err = marshal(streamEnd{Result: result}, frames.MaxEnd); err == nil {
			return content
		}
	}
	known := asFault(err)
	content, _ := json.Marshal(streamEnd{Error: &errorBody{known.Code, known.Detail[:min(len(known.Detail), maxEndDetail)]}})
	return content
}

// marshal returns the JSON of a value. It returns an error if that has more than limit bytes.
func marshal(value any, limit int) ([]byte, error) {
	content, err := json.Marshal(value)
	if err == nil && len(content) > limit {
		err = errors.New("the answer is too long")
	}
	return content, err
}
