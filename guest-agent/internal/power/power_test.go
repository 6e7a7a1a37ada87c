package power

import (
	"slices"
	"testing"

	"sandbar/guest-agent/internal/mounttable"
)

func TestDiskMountsAreThoseOfBlockDevicesButTheRoot(t *testing.T) {
	mounts := []mounttable.Mount{
		{Path: "/", Source: "/dev/vda"}, {Path: "/proc", Source: "proc"},
		{Path: "/mnt/a b", Source: "/dev/sda"}, {Path: "/mnt/a b/c", Source: "/dev/sdb"},
	}
	if got := diskMounts(mounts); !slices.Equal(got, []string{"/mnt/a b", "/mnt/a b/c"}) {
		t.Errorf("%q", got)
	}
}
