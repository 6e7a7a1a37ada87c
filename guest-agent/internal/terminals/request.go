package terminals

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"time"

	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/process"
)

// size is the size of a terminal's screen in characters.
type size struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

func (s size) check() error {
	if s.Cols == 0 || s.Rows == 0 {
		return invalid("cols and rows are 1 to 65535")
	}
	return nil
}

// openRequest holds the parameters of terminals.open.
type openRequest struct {
	ID string `json:"id"`
	size
	Env     map[string]string `json:"env"`
	User    string            `json:"user"`    // empty: root
	Cwd     string            `json:"cwd"`     // empty: the home of the user
	Command []string          `json:"command"` // empty: the login shell of the user
	IdleSec *float64          `json:"idle_sec"`
}

const (
	// defaultIdle is after how long a terminal without a connection ends.
	defaultIdle = 600 * time.Second
	// maxIdleSec is the longest such time that a request may set: 366 days.
	maxIdleSec = 366 * 24 * 3600
)

func parseOpen(params []byte) (*openRequest, error) {
	request := new(openRequest)
	if err := parse(params, request); err != nil {
		return nil, err
	}
	return request, request.check()
}

func (r *openRequest) check() error {
	if !isUUID(r.ID) {
		return invalid("id is not a UUID in lower case")
	}
	if err := r.size.check(); err != nil {
		return err
	}
	if r.Cwd != "" && r.Cwd[0] != '/' {
		return invalid("cwd is not an absolute path")
	}
	if r.IdleSec != nil && !(*r.IdleSec > 0 && *r.IdleSec <= maxIdleSec) {
		return invalid("idle_sec is out of range")
	}
	for name, value := range r.Env {
		if name == "" || strings.Contains(name, "=") || hasNull(name) || hasNull(value) {
			return invalid("env has a name or value that no environment can hold")
		}
	}
	for _, word := range append([]string{r.Cwd, r.User}, r.Command...) {
		if hasNull(word) {
			return invalid("a null byte cannot be part of a command, a path or a name")
		}
	}
	return nil
}

func (r *openRequest) idle() time.Duration {
	if r.IdleSec == nil {
		return defaultIdle
	}
	return time.Duration(*r.IdleSec * float64(time.Second))
}

// find looks up the program in the machine: the command, or the user's login shell, which reads the profile because its
// name begins with a minus. If a shell could not run the program, failure is the shell's exit code, else 0.
func (r *openRequest) find() (program *process.Program, failure int, err error) {
	env := map[string]string{"TERM": "xterm-256color"}
	for name, value := range r.Env {
		env[name] = value
	}
	if len(r.Command) > 0 {
		return process.Find(r.Command, r.User, r.Cwd, env)
	}
	if program, err = process.FindLogin(r.User, r.Cwd, env); err != nil {
		return nil, 0, err
	}
	program.Argv = []string{"-" + filepath.Base(program.Path)}
	return program, 0, nil
}

// maxListed is how many bytes of a command terminals.list shows.
const maxListed = 1024

// listed returns the command for terminals.list: the first part of a very long one, so that the list of all terminals
// stays short.
func (r *openRequest) listed() []string {
	room := maxListed
	command := make([]string, 0, min(len(r.Command), 16))
	for _, word := range r.Command {
		if len(word)+1 > room {
			return append(command, strings.ToValidUTF8(word[:max(room-1, 0)], "")+"…")
		}
		room -= len(word) + 1
		command = append(command, word)
	}
	return command
}

func parse(params []byte, request any) error {
	if err := json.Unmarshal(params, request); err != nil {
		return invalid("the parameters are not what this call takes: " + err.Error())
	}
	return nil
}

// isUUID reports whether id is a UUID in lower case. It becomes part of a path.
func isUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}

func hasNull(s string) bool { return strings.IndexByte(s, 0) >= 0 }

func invalid(detail string) error { return fault.New(fault.Validation, detail) }
