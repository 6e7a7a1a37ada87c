package api

import (
	"encoding/json"
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
	default:
		return statusInternal
	}
}

func answer(c *frames.Call, status int, body any) {
	content, err := json.Marshal(body)
	if err == nil && len(content) > frames.MaxAnswer {
		err = errors.New("the answer is too long")
	}
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
	known := new(fault.Error)
	if !errors.As(err, &known) {
		known = fault.New(fault.Internal, err.Error())
	}
	answer(c, statusOf(known.Code), errorBody{known.Code, known.Detail[:min(len(known.Detail), maxDetail)]})
}

// answerDone answers a request that returns no data: with 204, or with the error.
func answerDone(c *frames.Call, err error) {
	if err != nil {
		answerError(c, err)
		return
	}
	c.Answer(statusNoContent, nil)
}
