// Package fault is the one kind of error that the host is told about, free of transport: only the API knows which
// HTTP status belongs to which code.
package fault

// Code says what kind of error it is, in the words of the service's error table.
type Code string

// All codes.
const (
	Validation Code = "validation_error"
	NotFound   Code = "not_found"
	Conflict   Code = "conflict"
	Internal   Code = "internal_error"
)

// Error is an error with its code and a sentence for the reader.
type Error struct {
	Code   Code
	Detail string
}

func (e *Error) Error() string { return e.Detail }

// New returns an error of that code.
func New(code Code, detail string) *Error { return &Error{Code: code, Detail: detail} }
