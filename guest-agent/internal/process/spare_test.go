package process

import (
	"os"
	"path/filepath"
	"testing"
)

// take returns the name of the next group. Folders stand for control groups here.
func take(t *testing.T, s *Spares) string {
	t.Helper()
	group, directory, err := s.Take()
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	opened, err := directory.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if made, err := os.Stat(group.path); err != nil || !os.SameFile(opened, made) {
		t.Errorf("%s: the open directory is another one, %v", group.path, err)
	}
	return filepath.Base(group.path)
}

func TestTheNextGroupIsMadeAhead(t *testing.T) {
	root := t.TempDir()
	groups, err := MakeGroups(root)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSpares(groups, "job-")
	if got := take(t, s); got != "job-1" {
		t.Error(got)
	}
	s.Refill()
	s.Refill() // makes no second one
	if found, _ := filepath.Glob(root + "/job-*"); len(found) != 2 {
		t.Errorf("%q", found)
	}
	for _, want := range []string{"job-2", "job-3"} { // made ahead, and made now
		if got := take(t, s); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestASpareGroupThatAProgramRemovedIsReplaced(t *testing.T) {
	root := t.TempDir()
	groups, err := MakeGroups(root)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSpares(groups, "job-")
	s.Refill()
	if err := os.Remove(filepath.Join(root, "job-1")); err != nil {
		t.Fatal(err)
	}
	if got := take(t, s); got != "job-2" {
		t.Error(got)
	}
}
