package e2e

import (
	"fmt"
	"strings"
	"testing"

	"sandbar/guest-agent/internal/jobs"
)

// longest is the longest command, in bytes, that the kernel takes as one argument.
const longest = 128<<10 - 1

// padded makes a command as long as it should be, in bytes, without changing what it does.
func padded(command string, length int) string {
	return command + "\n#" + strings.Repeat("x", length-len(command)-2)
}

func TestCommandsOfAnyLengthBehaveAlike(t *testing.T) {
	h := startAgent(t).connect(t)
	for name, c := range map[string]struct {
		command string
		more    map[string]any
		want    string
	}{
		"parameters": {"echo $0 $# [$*] $-", nil, "exited 0 null|/bin/sh 0 []|"},
		"exit":       {"echo a; exit 7", nil, "exited 7 null|a|"},
		"status":     {"false", nil, "exited 1 null||"},
		"errexit":    {"set -e; false; echo no", nil, "exited 1 null||"},
		"return":     {"f() { return 5; }; f", nil, "exited 5 null||"},
		"trap":       {"trap 'echo end' EXIT; echo begin", nil, "exited 0 null|begin\nend|"},
		"signal":     {"kill -9 $$", nil, "exited null SIGKILL||"},
		"syntax":     {"echo before\nif", nil, "exited 2 null|before|"},
		"stdin":      {"read -r word; echo $word; cat", map[string]any{"stdin": []byte("one\ntwo\n")}, "exited 0 null|one\ntwo|"},
		"cwd":        {"pwd", map[string]any{"cwd": "/usr"}, "exited 0 null|/usr|"},
		"user":       {"id -un", map[string]any{"user": "nobody"}, "exited 0 null|nobody|"},
		"inherits":   {"[ -e /proc/self/fd/3 ] && echo open; exec sh -c '[ -e /proc/self/fd/3 ] && echo open; exit 0'", nil, "exited 0 null||"},
	} {
		for _, length := range []int{200, longest, longest + 1, 1 << 20} {
			t.Run(fmt.Sprint(name, length), func(t *testing.T) {
				request := map[string]any{"command": padded(c.command, length)}
				for key, value := range c.more {
					request[key] = value
				}
				result := h.run(fmt.Sprint(name, length), request)
				if name == "syntax" {
					result.stderr = nil // the wording of error messages differs between shells
				}
				if result.String() != c.want || result.code != 201 {
					t.Errorf("%d %s, want %s", result.code, result, c.want)
				}
			})
		}
	}
}

func TestLongCommandIsPrivate(t *testing.T) {
	h := startAgent(t).connect(t)
	look := "for f in /proc/$$/fd/*; do case $(readlink $f) in *command*) stat -L -c '%a %U %h' $f;; esac; done"
	request := map[string]any{"command": padded(look, longest+1), "user": "nobody"}
	if result := h.run("look", request); result.String() != "exited 0 null|600 nobody 0|" {
		t.Error(result)
	}
}

func TestLongCommandKeepsItsLineNumbers(t *testing.T) {
	h := startAgent(t).connect(t)
	for _, length := range []int{longest, longest + 1} {
		result := h.sh(fmt.Sprint("line", length), padded("true\nno-such-command", length))
		if !strings.Contains(string(result.stderr), "2: ") {
			t.Error(result)
		}
	}
}

func TestMergedOutputKeepsItsOrder(t *testing.T) {
	h := startAgent(t).connect(t)
	merged := func(id, command string) *outcome {
		return h.run(id, map[string]any{"command": command, "merge_output": true})
	}
	var script, want strings.Builder
	for n := range 300 {
		fmt.Fprintf(&script, "echo o%d; echo e%d >&2\n", n, n)
		fmt.Fprintf(&want, "o%d\ne%d\n", n, n)
	}
	result := merged("order", script.String())
	if string(result.stdout) != want.String() || len(result.stderr) > 0 || result.status.StderrBytes != 0 {
		t.Errorf("%q", result)
	}
	if result.status.StdoutBytes != int64(want.Len()) {
		t.Error(result.status.StdoutBytes)
	}
	for id, c := range map[string]struct {
		request map[string]any
		want    string
	}{
		"missing": {map[string]any{"argv": []string{"no-such-program"}}, "exited 127 null|sandbar: no-such-program: not found|"},
		"notexec": {map[string]any{"argv": []string{"/etc/passwd"}}, "exited 126 null|sandbar: /etc/passwd: permission denied|"},
		"nobody":  {map[string]any{"command": "echo a > /dev/stdout; echo b > /dev/stderr", "user": "nobody"}, "exited 0 null|a\nb|"},
		"long":    {map[string]any{"command": padded("echo a; echo b >&2", longest+1)}, "exited 0 null|a\nb|"},
		"timeout": {map[string]any{"command": "echo a >&2; sleep 100", "timeout_sec": 0.05}, "timed_out null SIGTERM|a|"},
		"left":    {map[string]any{"command": "echo a; sleep 100 & echo b >&2"}, "exited 0 null|a\nb|"},
	} {
		t.Run(id, func(t *testing.T) {
			c.request["merge_output"] = true
			if result := h.run(id, c.request); result.String() != c.want {
				t.Errorf("%s, want %s", result, c.want)
			}
		})
	}
	if apart := h.run("apart", map[string]any{"command": "echo a; echo b >&2", "merge_output": false}); apart.String() != "exited 0 null|a|b" {
		t.Error(apart)
	}
	h.expect(204, "POST", "/jobs/order/ack", fmt.Sprintf(`{"stdout":%d,"stderr":0}`, want.Len()))
	if status := h.status("order"); status.State != jobs.Exited {
		t.Errorf("%+v", status)
	}
}
