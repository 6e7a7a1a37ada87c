package process

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestNamesOfUsersAndGroups(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	passwd := "root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\nbroken\n:x:3:3:::\nann:x:1000:1000:::\nbad:x:no:1:::\n"
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := UserNames(root), map[uint32]string{0: "root", 1000: "ann"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := GroupNames(root); len(got) != 0 {
		t.Errorf("without /etc/group: %v", got)
	}
}
