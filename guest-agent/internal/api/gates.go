// The gates of a freeze are nearly always open. So a call makes its context, which costs time, only if it has to wait.

package api

import (
	"sandbar/guest-agent/internal/frames"
	"sandbar/guest-agent/internal/freeze"
)

// await waits until the gate is open. It returns an error if the call is cut first.
func await(c *frames.Call, gate *freeze.Gate) error {
	if err := enter(c, gate); err != nil {
		return err
	}
	gate.Leave()
	return nil
}

// enter waits until the gate is open, and enters. If it returns an error, because the call was cut, it has not entered.
func enter(c *frames.Call, gate *freeze.Gate) error {
	if gate.Enter() {
		return nil
	}
	return gate.EnterOpen(c.Context())
}
