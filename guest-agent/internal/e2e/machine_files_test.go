package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

const hugeFile = 1 << 30

// TestMachineFiles moves files in and out of a real machine, and logs how long that takes and what memory the agent needs.
func TestMachineFiles(t *testing.T) {
	m := bootMachine(t)
	h := newHost(t, m.port, testToken)
	h.expect(409, "POST", "/calls/files.entry", map[string]any{"path": "/"})
	h.expect(200, "PUT", "/identity", identityOf("0195a1b2-c3d4-7890-abcd-ef0123456789"))
	measureSmallFiles(t, h)
	before := residentOfAgent(t, h, "before")
	measureHugeFile(t, h)
	measureArchive(t, h)
	measureList(t, h)
	if grown := residentOfAgent(t, h, "after") - before; grown > 32_000 {
		t.Errorf("the agent's memory grew by %d kB", grown)
	}
	checkFullDisk(t, h)
	checkKernelFiles(t, h)
	checkFreezeDuringUpload(t, h)
	checkWatch(t, h)
	checkPowerOffDuringUpload(t, m, h)
}

// residentOfAgent returns the peak of the agent's memory in kB.
func residentOfAgent(t *testing.T, h *host, id string) int {
	t.Helper()
	peak, err := strconv.Atoi(strings.Fields(string(h.sh(id, "grep VmHWM /proc/1/status").stdout))[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("peak of the agent's memory, %s: %d kB", id, peak)
	return peak
}

func rate(bytes int64, since time.Time) string {
	took := time.Since(since)
	return fmt.Sprintf("%.1f MB/s (%v)", float64(bytes)/1e6/took.Seconds(), took.Round(time.Millisecond))
}

func measureHugeFile(t *testing.T, h *host) {
	t.Helper()
	params := map[string]any{"path": "/root/huge"}
	content := newNoise(hugeFile)
	begin := time.Now()
	if err := h.upload(params, content); err != nil {
		t.Fatal(err)
	}
	t.Logf("1 GiB up: %s", rate(hugeFile, begin))
	got := sha256.New()
	begin = time.Now()
	if err := h.download("files.read", params, got); err != nil || hex.EncodeToString(got.Sum(nil)) != content.sum() {
		t.Errorf("%x, %v, want %s", got.Sum(nil), err, content.sum())
	}
	t.Logf("1 GiB down: %s", rate(hugeFile, begin))
	h.guestCall("files.remove", params, nil)
}

func measureSmallFiles(t *testing.T, h *host) {
	t.Helper()
	content := strings.Repeat("x", 1<<10)
	for _, round := range []string{"new", "replaced"} {
		begin := time.Now()
		err := inParallel(100, func(i int) error {
			return h.upload(map[string]any{"path": fmt.Sprint("/root/small/", i), "parents": true}, strings.NewReader(content))
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("100 files of 1 KiB, %s: %v", round, time.Since(begin))
	}
	h.expectFile("/root/small/99", content)
	h.guestCall("files.remove", map[string]any{"path": "/root/small", "recursive": true}, nil)
}

func measureArchive(t *testing.T, h *host) {
	t.Helper()
	begin := time.Now()
	reader, writer := io.Pipe()
	copied := make(chan error, 1)
	h.guestCall("files.mkdir", map[string]any{"path": "/root/copy"}, nil)
	var result struct {
		Result struct {
			Entries      int
			RefusedCount int `json:"refused_count"`
		}
	}
	go func() {
		s, err := h.tryStream("files.unpack", map[string]any{"path": "/root/copy"}, nil)
		if err == nil {
			_, err = io.Copy(onlyWriter{s}, reader)
		}
		if err == nil {
			err = s.endInput()
		}
		if err == nil {
			_, err = io.ReadAll(s)
		}
		if err == nil {
			err = json.Unmarshal(s.end, &result)
		}
		_ = reader.CloseWithError(err)
		copied <- err
	}()
	count := &counted{Writer: writer}
	err := h.download("files.archive", map[string]any{"path": "/usr/share"}, count)
	_ = writer.CloseWithError(err)
	if err := <-copied; err != nil {
		t.Fatal(err)
	}
	t.Logf("/usr/share as an archive out and in: %d entries, %d refused, %s", result.Result.Entries, result.Result.RefusedCount, rate(count.bytes, begin))
	same := h.sh("diff", "diff -r --no-dereference /usr/share /root/copy | grep -v 'Only in /usr/share' ; find /usr/share | wc -l; find /root/copy | wc -l")
	lines := strings.Fields(string(same.stdout))
	if len(lines) != 2 || lines[0] == "1" {
		t.Errorf("%s", same)
		return
	}
	all, _ := strconv.Atoi(lines[0])
	if kept, _ := strconv.Atoi(lines[1]); kept != all-result.Result.RefusedCount || kept != result.Result.Entries+1 {
		t.Errorf("%d of %d entries, %+v", kept, all, result.Result)
	}
	begin = time.Now()
	h.guestCall("files.remove", map[string]any{"path": "/root/copy", "recursive": true}, nil)
	t.Logf("%d entries removed in %v", all, time.Since(begin))
}

type counted struct {
	io.Writer
	bytes int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return c.Writer.Write(p)
}

func measureList(t *testing.T, h *host) {
	t.Helper()
	h.sh("many", "mkdir /root/many && cd /root/many && seq -f entry-%05g 10000 | xargs touch")
	for range 2 {
		begin := time.Now()
		total := 0
		params := map[string]any{"path": "/root/many"}
		for more := true; more; {
			var page struct {
				Entries []struct{ Path string }
				More    bool
			}
			h.guestCall("files.list", params, &page)
			total += len(page.Entries)
			if more = page.More; more {
				params["after"] = page.Entries[len(page.Entries)-1].Path
			}
		}
		if total != 10_000 {
			t.Errorf("%d entries", total)
		}
		t.Logf("10,000 entries listed in %v", time.Since(begin))
	}
}

func checkFullDisk(t *testing.T, h *host) {
	t.Helper()
	h.sh("small", "mkdir -p /mnt/small; dd if=/dev/zero of=/root/disk bs=1M count=8 2>&1; mkfs.ext4 -q /root/disk; mount -o loop /root/disk /mnt/small || mount -t tmpfs -o size=4m x /mnt/small; grep small /proc/mounts")
	params := map[string]any{"path": "/mnt/small/file"}
	if err := h.upload(params, strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	err := h.upload(params, newNoise(64<<20))
	if err == nil || !strings.HasPrefix(err.Error(), "disk_full: ") || !strings.HasSuffix(err.Error(), ": /mnt/small/file") {
		t.Error(err)
	}
	h.expectFile("/mnt/small/file", "old")
	if got := h.sh("left", "ls -A /mnt/small"); strings.Contains(string(got.stdout), ".sandbar") {
		t.Errorf("%s", got)
	}
}

func checkKernelFiles(t *testing.T, h *host) {
	t.Helper()
	h.expectFile("/proc/sys/kernel/ostype", "Linux\n")
	for _, path := range []string{"/proc/kmsg", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/1/environ", "/proc/cpuinfo"} {
		got := new(strings.Builder)
		if err := h.download("files.read", map[string]any{"path": path}, got); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		t.Logf("%s: %d bytes", path, got.Len())
	}
	for _, path := range []string{"/dev/vda", "/dev/console", "/dev/hvc0", "/dev/vport0p1", "/dev/ptmx", "/run", "/proc/1/mem"} {
		if err := h.download("files.read", map[string]any{"path": path}, io.Discard); err == nil {
			t.Errorf("%s was read", path)
		}
	}
	for _, path := range []string{"/dev/null", "/proc/sys/kernel/hostname", "/sys/power/state"} {
		if err := h.upload(map[string]any{"path": path}, strings.NewReader("x")); err == nil || !strings.HasPrefix(err.Error(), "409 ") {
			t.Errorf("%s: %v", path, err)
		}
	}
	h.expect(409, "POST", "/calls/files.remove", map[string]any{"path": "/run", "recursive": true})
}

// checkFreezeDuringUpload freezes the root file system while an upload runs. The upload goes on after the thaw.
func checkFreezeDuringUpload(t *testing.T, h *host) {
	t.Helper()
	content := newNoise(100 << 20)
	params := map[string]any{"path": "/root/frozen"}
	ended := make(chan error, 1)
	go func() { ended <- h.upload(params, content) }()
	for range 3 {
		begin := time.Now()
		h.expect(204, "POST", "/freeze", map[string]any{"timeout_ms": 10_000})
		frozen := time.Since(begin)
		h.expect(204, "POST", "/thaw", nil)
		t.Logf("frozen after %v during an upload", frozen)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	got := sha256.New()
	if err := h.download("files.read", params, got); err != nil || hex.EncodeToString(got.Sum(nil)) != content.sum() {
		t.Errorf("%x, %v, want %s", got.Sum(nil), err, content.sum())
	}
}

// checkPowerOffDuringUpload powers the machine off while an upload runs, which must not keep the disk from being made
// read-only.
func checkPowerOffDuringUpload(t *testing.T, m *machine, h *host) {
	t.Helper()
	s := h.guestStream("files.write", map[string]any{"path": "/root/unfinished"}, nil)
	if _, err := io.Copy(onlyWriter{s}, newNoise(1<<20)); err != nil {
		t.Fatal(err)
	}
	h.expect(202, "POST", "/poweroff", nil)
	select {
	case <-m.ended:
	case <-time.After(15 * time.Second):
		t.Error("the machine does not power off")
	}
	if log, err := os.ReadFile(m.console); err != nil || !bytes.Contains(log, []byte("powering off")) || bytes.Contains(log, []byte("remount")) {
		t.Errorf("%s %v", log, err)
	}
}

func checkWatch(t *testing.T, h *host) {
	t.Helper()
	h.sh("folders", "mkdir -p /root/watched/sub")
	s := h.guestStream("files.watch", map[string]any{"path": "/root/watched", "recursive": true}, nil)
	h.sh("changes", "cd /root/watched; echo x > sub/a; mv sub/a b; mkdir new; touch new/c; rm -r /root/watched")
	lines := bufio.NewScanner(s)
	var seen []string
	for lines.Scan() {
		var e struct{ Type, Path, From string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != "changed" {
			seen = append(seen, strings.TrimSpace(e.Type+" "+e.From+" "+e.Path))
		}
	}
	if err := s.failure(); err != nil {
		t.Error(err)
	}
	got := strings.ReplaceAll(strings.Join(seen, ", "), "/root/watched", "")
	for _, want := range []string{"ready, created  /sub/a, renamed /sub/a /b, created  /new, created  /new/c, ", "removed  /new/c", ", removed "} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	t.Log(got)
}

// A power failure loses what is only in the memory of the machine. An upload that was answered is on the disk, and one
// that was not leaves the old file and nothing else.
func TestMachineFilesAfterAPowerFailure(t *testing.T) {
	m := bootMachine(t)
	identify := func() *host {
		h := newHost(t, m.port, testToken)
		h.expect(200, "PUT", "/identity", identityOf("0195a1b2-c3d4-7890-abcd-ef0123456789"))
		return h
	}
	h := identify()
	params := map[string]any{"path": "/root/folder/file", "parents": true}
	for _, content := range []string{"old", "new"} {
		if err := h.upload(params, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		m.kill()
		m = bootDisk(t, m.disk)
		h = identify()
		h.expectFile("/root/folder/file", content)
		s := h.guestStream("files.write", params, nil)
		if _, err := io.Copy(onlyWriter{s}, newNoise(40<<20)); err != nil {
			t.Fatal(err)
		}
		m.kill()
		m = bootDisk(t, m.disk)
		h = identify()
		h.expectFile("/root/folder/file", content)
		if got := h.sh("names", "ls -A /root/folder"); got.String() != "exited 0 null|file|" {
			t.Error(got)
		}
	}
}
