package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"sandbar/guest-agent/internal/console"
	"sandbar/guest-agent/internal/fault"
)

// maxBody is the size of the largest request body, in bytes. The largest request starts a job with its standard input
// in base64.
const maxBody = 2 << 20

// statusOf returns the HTTP status of an error code. No other code maps errors to HTTP statuses.
func statusOf(code fault.Code) int {
	switch code {
	case fault.Validation:
		return http.StatusBadRequest
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	default:
		return http.StatusInternalServerError
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	content, err := json.Marshal(body)
	if err != nil {
		console.Log("answer: ", err.Error())
		status, content = http.StatusInternalServerError, nil
	}
	header := w.Header()
	header["Content-Type"] = jsonType
	w.WriteHeader(status)
	_, _ = w.Write(content) // fails only when the host has gone; nobody needs the answer then
}

var jsonType = []string{"application/json"}

type errorBody struct {
	Code   fault.Code `json:"code"`
	Detail string     `json:"detail"`
}

func answerError(w http.ResponseWriter, err error) {
	known := new(fault.Error)
	if !errors.As(err, &known) {
		known = fault.New(fault.Internal, err.Error())
	}
	answer(w, statusOf(known.Code), errorBody{known.Code, known.Detail})
}

// answerDone answers a request that returns no data: with 204, or with the error.
func answerDone(w http.ResponseWriter, err error) {
	if err != nil {
		answerError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, fault.New(fault.Validation, "the body cannot be read: "+err.Error())
	}
	return body, nil
}
