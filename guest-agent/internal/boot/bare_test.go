package boot

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTheDriverOfADiskIsFound uses a folder that looks like sysfs: the disk links to its device, and the device to its
// driver.
func TestTheDriverOfADiskIsFound(t *testing.T) {
	sys := t.TempDir()
	device, folder := filepath.Join(sys, "devices/virtio3"), filepath.Join(sys, "bus/drivers/blk")
	block := filepath.Join(device, "block/vda")
	for _, path := range []string{block, folder, filepath.Join(sys, "class/block")} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		filepath.Join(sys, "class/block/vda"): block,
		filepath.Join(block, "device"):        "../..",
		filepath.Join(device, "driver"):       folder,
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	got, err := driverOf(filepath.Join(sys, "class/block"), "vda")
	if want := (driver{folder, "virtio3"}); err != nil || got != want {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if err := got.bind(); err != nil {
		t.Error(err)
	}
	if content, _ := os.ReadFile(folder + "/bind"); string(content) != "virtio3" {
		t.Errorf("bound %q", content)
	}
	if _, err := driverOf(filepath.Join(sys, "class/block"), "vdb"); err == nil {
		t.Error("a disk that does not exist has a driver")
	}
}
