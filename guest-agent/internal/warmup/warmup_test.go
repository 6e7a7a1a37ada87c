package warmup

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		if err := readRegular(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{pipe, "/dev/null", dir, filepath.Join(dir, "missing")} {
		if readRegular(path) == nil {
			t.Errorf("%s was read", path)
		}
	}
}
