package jobs

import (
	"strings"
	"testing"

	"sandbar/guest-agent/internal/process"
)

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"command":"true","env":{"A":"b"},"cwd":"/","user":"root","stdin":"aGk=","timeout_sec":1,"max_output_bytes":5}`))
	f.Add([]byte(`{"argv":["a","b"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := ParseRequest(body)
		if err != nil {
			return
		}
		if len(request.argv()) == 0 || request.outputLimit() < 0 || request.TimeoutSec < 0 {
			t.Errorf("%+v", request)
		}
		for _, word := range append(request.argv(), process.Environment(&process.Account{}, request.Env)...) {
			if strings.Contains(word, "\x00") {
				t.Errorf("null byte in %q", word)
			}
		}
	})
}

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "0195A-_z": true, strings.Repeat("a", 64): true,
		"": false, ".": false, "..": false, "a/b": false, "a b": false, "é": false, strings.Repeat("a", 65): false,
	} {
		if ValidID(id) != want {
			t.Errorf("%q", id)
		}
	}
}
