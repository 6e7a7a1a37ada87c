package power

import (
	"slices"
	"testing"
)

func TestDiskMountsAreThoseOfBlockDevicesButTheRoot(t *testing.T) {
	table := "/dev/vda / ext4 rw 0 0\nproc /proc proc rw 0 0\n/dev/sda /mnt/a\\040b ext4 rw 0 0\n/dev/sdb /mnt/a\\040b/c ext4 rw 0 0\nbroken\n"
	if got := diskMounts(table); !slices.Equal(got, []string{"/mnt/a b", "/mnt/a b/c"}) {
		t.Errorf("%q", got)
	}
}
