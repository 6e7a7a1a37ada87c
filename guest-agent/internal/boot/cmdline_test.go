package boot

import (
	"strings"
	"testing"
)

func TestRootDevice(t *testing.T) {
	for line, want := range map[string]string{
		"":                        "/dev/vda",
		"quiet root=/dev/vdb\n":   "/dev/vdb",
		"root= quiet":             "/dev/vda",
		"root=/dev/a root=/dev/b": "/dev/b",
		"xroot=b root":            "/dev/vda",
	} {
		if got := rootDevice(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestIsBare(t *testing.T) {
	for line, want := range map[string]bool{
		"":                                 false,
		"root=/dev/vda sandbar.bare quiet": true,
		"sandbar.bare\n":                   true,
		"sandbar.barely x=sandbar.bare":    false,
	} {
		if got := isBare(line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

func FuzzRootDevice(f *testing.F) {
	f.Add("console=ttyS0 root=/dev/vda quiet")
	f.Fuzz(func(t *testing.T, line string) {
		if device := rootDevice(line); device == "" || strings.ContainsAny(device, " \t\n") {
			t.Errorf("%q", device)
		}
	})
}
