package boot

import (
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	for line, want := range map[string]options{
		"":                                    {root: "/dev/vda"},
		"quiet root=/dev/vdb\n":               {root: "/dev/vdb"},
		"root= sandbar.channel=ab":            {root: "/dev/vda", token: "ab"},
		"sandbar.channel=a sandbar.channel=b": {root: "/dev/vda", token: "b"},
		"sandbar.channels=a xroot=b":          {root: "/dev/vda"},
	} {
		if got := parseCommandLine(line); got != want {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
}

func FuzzCommandLine(f *testing.F) {
	f.Add("console=ttyS0 root=/dev/vda sandbar.channel=00")
	f.Fuzz(func(t *testing.T, line string) {
		found := parseCommandLine(line)
		if found.root == "" || strings.ContainsAny(found.root+found.token, " \t\n") {
			t.Errorf("%+v", found)
		}
	})
}
