package jobs

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sandbar/guest-agent/internal/process"
)

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"command":"true","env":{"A":"b"},"cwd":"/","user":"root","stdin":"aGk=","timeout_sec":1,"max_output_bytes":5}`))
	f.Add([]byte(`{"argv":["a","b"]}`))
	f.Add([]byte(`{"argv":["a"],"stdin_open":true,"merge_output":false,"timeout_sec":0.5,"other":[{}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if plain, ok := readPlain(body); ok {
			var want Request
			if err := json.Unmarshal(body, &want); err != nil || !reflect.DeepEqual(plain, &want) {
				t.Errorf("%s: %+v, %+v, %v", body, plain, want, err)
			}
		}
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

// The host's usual requests must be read without reflection, which is slow in a new clone.
func TestUsualRequestsArePlain(t *testing.T) {
	for _, body := range []string{
		`{"command":"echo hi","env":{"A":"b"},"user":"root","cwd":"/","timeout_sec":60,"max_output_bytes":268435456}`,
		`{"argv":["ls","-l"],"env":{},"stdin":"aGk=","stdin_open":true,"merge_output":true,"max_output_bytes":5}`,
	} {
		if _, ok := readPlain([]byte(body)); !ok {
			t.Error(body)
		}
	}
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
