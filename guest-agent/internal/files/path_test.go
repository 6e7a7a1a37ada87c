package files

import (
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/fault"
)

func TestPathsAreBroughtIntoTheirShortestForm(t *testing.T) {
	for text, want := range map[string]Path{
		"/": "/", "//": "/", "/.": "/", "/a": "/a", "/a/": "/a", "//a//b/./c/": "/a/b/c",
		"/a/../b": "/a/../b", "/a/..": "/a/..", "/...": "/...",
		"/%66oo%2Fbar%2fbaz": "/foo/bar/baz", "/%ff%0A%25": "/\xff\n%", "/a b&c": "/a b&c",
	} {
		var path Path
		if err := path.UnmarshalText([]byte(text)); err != nil || path != want {
			t.Errorf("%s: %q, %v", text, path, err)
		}
	}
}

func TestPathsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "not absolute", "a": "not absolute", "./a": "not absolute", "%61/b": "not absolute", "/a%00b": "null byte",
		"/%": "%", "/%1": "%", "/%g1": "%", "/é": "not percent-encoded",
		"/" + strings.Repeat("a", 256):    "255 bytes",
		strings.Repeat("/aaaaaaa", 513):   "4096 bytes",
		"/" + strings.Repeat("%ff", 4096): "4096 bytes",
	} {
		var path Path
		mustRefuse(t, path.UnmarshalText([]byte(text)), fault.Validation, want)
	}
}

func TestEveryCallRefusesAPathThatIsMissingOrWrong(t *testing.T) {
	f := newFiles()
	for name, call := range f.Calls() {
		for _, params := range []string{`{}`, `{"path":"a","from":"a"}`, `{"path":1}`, `[]`, ``} {
			_, err := call(t.Context(), []byte(params))
			t.Log(name, params, err)
			mustRefuse(t, err, fault.Validation, "")
		}
	}
	for name, stream := range f.Streams() {
		for _, params := range []string{`{}`, `{"path":"a"}`, `{"path":1}`, `[]`, ``} {
			_, err := stream(t.Context(), []byte(params), nil)
			t.Log(name, params, err)
			mustRefuse(t, err, fault.Validation, "")
		}
	}
}

// A path of 4096 bytes has one more than the kernel takes.
func TestTheKernelRefusesAPathThatIsTooLong(t *testing.T) {
	_, _, err := read(t, newFiles(), fields{"path": strings.Repeat("/aaaaaaa", 512)})
	mustRefuse(t, err, fault.Validation, "too long")
}

func TestErrorsShowTheEndOfALongPathAsText(t *testing.T) {
	err := problem(Path("/"+strings.Repeat("x", 400)+"\xffend"), unix.ENOENT)
	mustRefuse(t, err, fault.NotFound, "x\uFFFDend")
	if size := len(err.Error()); size > 400 {
		t.Errorf("%d bytes", size)
	}
}

func FuzzPath(f *testing.F) {
	f.Add("/a/../b//./%ff%00")
	f.Add("/%2")
	f.Fuzz(func(t *testing.T, text string) {
		var path Path
		if path.UnmarshalText([]byte(text)) != nil {
			return
		}
		if path[0] != '/' || strings.Contains(string(path), "//") || strings.Contains(string(path)+"/", "/./") || strings.Contains(string(path), "\x00") {
			t.Errorf("%q from %q", path, text)
		}
		content, err := json.Marshal(path)
		var again Path
		if err != nil || json.Unmarshal(content, &again) != nil || again != path {
			t.Errorf("%q became %s and %q", path, content, again)
		}
		if encodedLen(string(path)) != len(content)-2 {
			t.Errorf("%d is not the length of %s", encodedLen(string(path)), content)
		}
		folder, name := path.split()
		if path != "/" && folder.join(name) != path {
			t.Errorf("%q and %q from %q", folder, name, path)
		}
	})
}
