// Package calls defines the guest calls and guest streams: what the control plane may ask of a machine by name, such as
// "files.list". A call is one request and one answer. A stream also carries bytes in both directions. Package api serves
// them to the host, and the packages of the features implement them.
package calls

import (
	"context"
	"io"
)

// Call answers one request. params is the JSON object of the request. The answer is encoded as JSON, with at most 1 MiB.
// An error is a *fault.Error, or else it counts as internal.
type Call func(ctx context.Context, params []byte) (answer any, err error)

// Stream serves one two-way stream. params is the JSON object of the request. Before open was called, an error refuses
// the request. open accepts it with a head for the host, in JSON of at most 4 KiB; it may be called once. Then the stream
// lasts until the function returns: with a result, in JSON of at most 4 KiB, or with an error. ctx ends when the host
// cancels the stream or the session with the host ends.
type Stream func(ctx context.Context, params []byte, open func(head any) (Conn, error)) (result any, err error)

// Conn carries the bytes of a stream. One goroutine may read while another writes. Both fail when the stream function has
// returned.
type Conn interface {
	// Reader returns the bytes that the host sends. It returns io.EOF only after the host has ended its direction, and
	// another error when the stream was cut.
	io.Reader
	// Writer sends bytes to the host. It waits until the host accepts them.
	io.Writer
}
