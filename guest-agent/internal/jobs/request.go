package jobs

import (
	"encoding/json"
	"strings"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/plainjson"
)

// defaultOutputLimit is how many bytes of each output stream are kept if the request sets no limit.
const defaultOutputLimit = 256 << 20

// Request is a request of the host to run a job: either a command line for the shell, or a program with its arguments.
type Request struct {
	Command        *string           `json:"command"`
	Argv           []string          `json:"argv"`
	Env            map[string]string `json:"env"`
	Cwd            string            `json:"cwd"`
	User           string            `json:"user"`
	Stdin          []byte            `json:"stdin"`
	StdinOpen      bool              `json:"stdin_open"` // more input follows later
	TimeoutSec     float64           `json:"timeout_sec"`
	MaxOutputBytes *int64            `json:"max_output_bytes"`
	MergeOutput    bool              `json:"merge_output"`
}

// ParseRequest parses and checks the JSON of a request. It does not check whether the user, the directory or the
// program exist in the machine.
func ParseRequest(body []byte) (*Request, error) {
	request, ok := readPlain(body)
	if !ok {
		request = new(Request)
		if err := json.Unmarshal(body, request); err != nil {
			return nil, invalid("the body is not a job request: " + err.Error())
		}
	}
	if err := request.check(); err != nil {
		return nil, err
	}
	return request, nil
}

var requestFields = []string{
	"command", "argv", "env", "cwd", "user", "stdin", "stdin_open", "timeout_sec", "max_output_bytes", "merge_output",
}

// readPlain reads a request in plain JSON. It returns false for any other text.
func readPlain(body []byte) (*Request, bool) {
	request := new(Request)
	ok := plainjson.Read(body, requestFields, func(r *plainjson.Reader, name string) {
		switch name {
		case "command":
			command := r.Text()
			request.Command = &command
		case "argv":
			request.Argv = r.Texts()
		case "env":
			request.Env = r.Map()
		case "cwd":
			request.Cwd = r.Text()
		case "user":
			request.User = r.Text()
		case "stdin":
			request.Stdin = r.Bytes()
		case "stdin_open":
			request.StdinOpen = r.Bool()
		case "timeout_sec":
			request.TimeoutSec = float64(r.Int())
		case "max_output_bytes":
			limit := r.Int()
			request.MaxOutputBytes = &limit
		case "merge_output":
			request.MergeOutput = r.Bool()
		}
	})
	return request, ok
}

func (r *Request) check() error {
	if (r.Command == nil) == (len(r.Argv) == 0) {
		return invalid("exactly one of command and argv is needed")
	}
	if r.Cwd != "" && r.Cwd[0] != '/' {
		return invalid("cwd is not an absolute path")
	}
	if r.TimeoutSec < 0 || r.TimeoutSec > maxTimeoutSec {
		return invalid("timeout_sec is out of range")
	}
	if r.MaxOutputBytes != nil && *r.MaxOutputBytes < 0 {
		return invalid("max_output_bytes is negative")
	}
	for name, value := range r.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || hasNull(value) {
			return invalid("env has a name or value that no environment can hold")
		}
	}
	for _, word := range r.argv() {
		if hasNull(word) {
			return invalid("a null byte cannot be part of a command")
		}
	}
	if hasNull(r.Cwd) || hasNull(r.User) {
		return invalid("a null byte cannot be part of a path or a name")
	}
	return nil
}

// maxTimeoutSec is the longest time-out that a request may set: 366 days. It also fits easily into a time.Duration,
// which counts nanoseconds.
const maxTimeoutSec = 366 * 24 * 3600

// argv returns the program to run and its arguments.
func (r *Request) argv() []string {
	switch {
	case r.Command == nil:
		return r.Argv
	case r.script() != nil:
		return []string{"/bin/sh", "-c", runScript}
	default:
		return []string{"/bin/sh", "-c", *r.Command}
	}
}

// script returns the command if it is too long for an argument of a program. Otherwise it returns nil.
func (r *Request) script() []byte {
	if r.Command == nil || len(*r.Command) <= maxArgument {
		return nil
	}
	return []byte(*r.Command)
}

func (r *Request) outputLimit() int64 {
	if r.MaxOutputBytes == nil {
		return defaultOutputLimit
	}
	return *r.MaxOutputBytes
}

func hasNull(s string) bool { return strings.IndexByte(s, 0) >= 0 }

func invalid(detail string) error { return fault.New(fault.Validation, detail) }

// ValidID reports whether id may be the id of a job. Few characters are allowed, because the id becomes part of a path.
func ValidID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
