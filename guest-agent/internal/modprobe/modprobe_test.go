package modprobe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestForbidAndAllow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modprobe")
	set := func(program string) {
		if err := os.WriteFile(path, []byte(program+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	loader := &Loader{setting: path}
	check := func(step string, err error, want string) {
		t.Helper()
		content, _ := os.ReadFile(path)
		line, _, _ := strings.Cut(string(content), "\n") // the kernel's file has one line; this one keeps old bytes
		if err != nil || line != want {
			t.Errorf("%s: %v, %q", step, err, content)
		}
	}
	set("/sbin/modprobe")
	check("forbid", loader.Forbid(), "")
	check("forbid again", loader.Forbid(), "")
	check("warm up", loader.WarmUp(), "")
	check("allow", loader.Allow(), "/sbin/modprobe")
	set("/bin/other")
	check("warm up what is allowed", loader.WarmUp(), "/bin/other")
	check("allow again", loader.Allow(), "/bin/other")
	check("forbid another program", loader.Forbid(), "")
	check("allow it", loader.Allow(), "/bin/other")
	set("")
	check("forbid none", loader.Forbid(), "")
	check("allow none", loader.Allow(), "")
}

func TestAKernelWithoutModules(t *testing.T) {
	loader := &Loader{setting: filepath.Join(t.TempDir(), "missing")}
	if err := loader.Forbid(); err != nil {
		t.Error(err)
	}
	if err := loader.Allow(); err != nil {
		t.Error(err)
	}
}
