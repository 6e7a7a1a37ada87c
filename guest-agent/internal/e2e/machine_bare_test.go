package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// diskWith returns a disk of this size on the test's root file system, whose file at path has the content.
func diskWith(t *testing.T, size, path, content string) string {
	t.Helper()
	directory := t.TempDir()
	disk, source := filepath.Join(directory, "disk"), filepath.Join(directory, "content")
	if err := os.WriteFile(source, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"cp", "--sparse=always", os.Getenv("SANDBAR_TEST_ROOTFS"), directory + "/raw"},
		{"debugfs", "-w", "-R", "write " + source + " " + path, directory + "/raw"},
		{"qemu-img", "create", "-q", "-f", "qcow2", "-b", directory + "/raw", "-F", "raw", disk, size},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", command, out)
		}
	}
	return disk
}

func TestABareMachineMountsWhateverDiskItHasWhenItGetsItsIdentity(t *testing.T) {
	t.Setenv("SANDBAR_TEST_APPEND", "sandbar.bare")
	placeholder := bootMachine(t)
	h := newHost(t, placeholder.port, testToken)
	if got := h.expect(200, "GET", "/healthz", nil); !strings.Contains(got, `"awaits_disk":true`) {
		t.Fatal("it has mounted the placeholder:", got)
	}
	h.expect(409, "PUT", "/jobs/early", map[string]any{"command": "true"})
	for range 2 {
		h.expect(200, "POST", "/warm-up", identityOf("warmed-up"))
		if got := h.run("warm-up", map[string]any{"command": "true"}); got.String() != "exited 0 null|warm-up|" {
			t.Error(got)
		}
		h.expect(204, "DELETE", "/jobs/warm-up", nil)
	}
	newHost(t, placeholder.port, testToken).expect(200, "GET", "/healthz", nil) // a template has an idle session
	saved := placeholder.save(t)
	for _, size := range []string{"6G", "12G"} {
		saved.disk = diskWith(t, size, "/who", "the disk of "+size)
		m := saved.restore(t)
		h := newHost(t, m.port, testToken)
		begin := time.Now()
		h.expect(200, "PUT", "/identity", identityOf(machineA))
		t.Logf("identity with the disk of %s in %v", size, time.Since(begin))
		if got := h.expect(200, "GET", "/healthz", nil); !strings.Contains(got, `"awaits_disk":false`) {
			t.Error(got)
		}
		for name, c := range map[string][2]string{
			"who":      {"cat /who", "the disk of " + size},
			"size":     {"echo $(($(cat /sys/class/block/vda/size) / 2097152))G", size},
			"root":     {"awk '$2==\"/\"{print $1,$3}' /proc/mounts", "/dev/vda ext4"},
			"init":     {"ls /proc/1/root/ | grep -c root-fs; ls /proc/1/root/modules.list", "0"},
			"hostname": {"hostname; cat /etc/hostname; grep -c warm-up /etc/hosts", "m-0195\nm-0195\n0"},
			"mounts":   {"awk '{print $2}' /proc/mounts | sort | tr '\\n' ' '", "/ /dev /dev/pts /dev/shm /proc /run /sys /sys/fs/cgroup"},
			"cgroup":   {"sed 's/[0-9]*$//' /proc/self/cgroup", "0::/sandbar/job-"},
			"grown":    {"df -BG --output=size / | tail -1 | awk '{print ($1+0>=5)}'", "1"},
		} {
			if result := h.sh(name, c[0]); strings.TrimSpace(string(result.stdout)) != c[1] {
				t.Errorf("%s: %s\nwant %q", name, result, c[1])
			}
		}
		h.expect(202, "POST", "/poweroff", nil)
		awaitEnd(t, m)
	}
}

func TestABareMachineWithADiskThatCannotBeMountedRefusesTheIdentity(t *testing.T) {
	t.Setenv("SANDBAR_TEST_APPEND", "sandbar.bare")
	placeholder := bootMachine(t)
	newHost(t, placeholder.port, testToken).expect(200, "GET", "/healthz", nil) // a template has an idle session
	saved := placeholder.save(t)
	saved.disk = filepath.Join(t.TempDir(), "empty")
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", saved.disk, "2G").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	h := newHost(t, saved.restore(t).port, testToken)
	if got := h.expect(500, "PUT", "/identity", identityOf(machineA)); !strings.Contains(got, "root disk") {
		t.Error(got)
	}
	h.expect(409, "PUT", "/jobs/early", map[string]any{"command": "true"})
}
