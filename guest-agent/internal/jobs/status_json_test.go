package jobs

import (
	"encoding/json"
	"testing"
)

func FuzzStatusJSON(f *testing.F) {
	f.Add("job-1", "exited", "SIGKILL", int64(7), int64(1764193000000), true, uint8(0xff))
	f.Add("a\"b<\xff\\", "running", "", int64(-1), int64(0), false, uint8(0))
	f.Fuzz(func(t *testing.T, id, state, signal string, a, b int64, truncated bool, present uint8) {
		code := int(a)
		status := Status{ID: id, State: State(state), StdoutBytes: a, StderrBytes: b, Truncated: truncated, StartedUnixMs: b}
		if present&1 != 0 {
			status.ExitCode = &code
		}
		if present&2 != 0 {
			status.Signal = &signal
		}
		if present&4 != 0 {
			status.FinishedUnixMs = &b
		}
		if present&8 != 0 {
			status.StdinBytes = &a
		}
		want, err := json.Marshal(status)
		if got := status.JSON(); err != nil || string(got) != string(want) {
			t.Errorf("%s, want %s, %v", got, want, err)
		}
	})
}
