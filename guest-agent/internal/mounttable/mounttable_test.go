package mounttable

import (
	"slices"
	"testing"
)

func TestTableIsRead(t *testing.T) {
	table := "22 1 254:0 / / rw,noatime shared:1 - ext4 /dev/vda rw\n" +
		"30 22 8:0 /in\\040side /mnt/a\\040b rw - ext4 /dev/sda rw\n" +
		"31 22 0:5 / /dev rw master:2 propagate_from:3 - devtmpfs devtmpfs rw\nbroken\n"
	want := []Mount{{"254:0", "/", "/dev/vda"}, {"8:0", "/mnt/a b", "/dev/sda"}, {"0:5", "/dev", "devtmpfs"}}
	if got := parse(table); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestOwnTableHasARoot(t *testing.T) {
	mounts, err := Own()
	if err != nil || !slices.ContainsFunc(mounts, func(m Mount) bool { return m.Path == "/" }) {
		t.Errorf("%q, %v", mounts, err)
	}
}
