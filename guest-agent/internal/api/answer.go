package api

import (
	"errors"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/frames"
)

// The statuses of answers. Their numbers are those of HTTP.
const (
	statusOK         = 200
	statusCreated    = 201
	statusAccepted   = 202
	statusNoContent  = 204
	statusBadRequest = 400
	statusNotFound   = 404
	statusConflict   = 409
	statusInternal   = 500
	statusBadGateway = 502
	statusNoStorage  = 507
)

// statusOf returns the status of an answer with this error code. All error answers get their status here.
func statusOf(code fault.Code) int {
	switch code {
	case fault.Validation:
		return statusBadRequest
	case fault.NotFound:
		return statusNotFound
	case fault.Conflict:
		return statusConflict
	case fault.DiskFull:
		return statusNoStorage
	case fault.PortNotOpen:
		return statusBadGateway
	default:
		return statusInternal
	}
}

func answer(c *frames.Call, status int, body any) {
	content, err := marshal(body, frames.MaxAnswer)
	if err != nil {
		answerError(c, err)
		return
	}
	c.Answer(status, content)
}

type errorBody struct {
	Code   fault.Code `json:"code"`
	Detail string     `json:"detail"`
}

// maxDetail is the size of the longest error text in an answer, in bytes. A longer text, for example one that quotes a
// part of the request, is cut.
const maxDetail = 64 << 10

func answerError(c *frames.Call, err error) {
	known := asFault(err)
	answer(c, statusOf(known.Code), errorBody{known.Code, known.Detail[:min(len(known.Detail), maxDetail)]})
}

// asFault returns the error with its code. An error without a code counts as internal.
func asFault(err error) *fault.Error {
	known := new(fault.Error)
	if errors.As(err, &known) {
		return known
	}
	return fault.New(fault.Internal, err.Error())
}

// answerDone answers a request that returns no data: with 204, or with the error.
func answerDone(c *frames.Call, err error) {
	if err != nil {
		answerError(c, err)
		return
	}
	c.Answer(statusNoContent, nil)
}
