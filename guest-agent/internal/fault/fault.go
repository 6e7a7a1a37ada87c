// Package fault defines the errors that the agent reports to the host. They have a code and a sentence, but no
// status: only package api maps codes to statuses.
package fault

// Code is the kind of an error. The codes are those of the error table in packages/contract/src/errors.ts.
type Code string

// The codes that the agent uses.
const (
	Validation  Code = "validation_error"
	NotFound    Code = "not_found"
	Conflict    Code = "conflict"
	DiskFull    Code = "disk_full"
	PortNotOpen Code = "port_not_open"
	Internal    Code = "internal_error"
)

// Error is an error with a code for programs and a sentence for people.
type Error struct {
	Code   Code
	Detail string
}

func (e *Error) Error() string { return e.Detail }

// New returns an error with the code and the sentence.
func New(code Code, detail string) *Error { return &Error{Code: code, Detail: detail} }
