package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// monitor is a client of QEMU's monitor (QMP).
type monitor struct {
	t       *testing.T
	conn    net.Conn
	answers *bufio.Scanner
	events  map[string]bool // names of the events received so far
}

func (m *machine) monitor(t *testing.T) *monitor {
	t.Helper()
	conn, err := net.Dial("unix", m.qmp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	q := &monitor{t, conn, bufio.NewScanner(conn), make(map[string]bool)}
	q.do(`{"execute": "qmp_capabilities"}`)
	return q
}

// do sends a command and returns its answer.
func (q *monitor) do(command string) json.RawMessage {
	q.t.Helper()
	if _, err := q.conn.Write([]byte(command)); err != nil {
		q.t.Fatal(err)
	}
	for q.answers.Scan() {
		var answer struct {
			Return, Error json.RawMessage
			Event         string
		}
		if err := json.Unmarshal(q.answers.Bytes(), &answer); err != nil {
			q.t.Fatal(err)
		}
		switch {
		case answer.Error != nil:
			q.t.Fatalf("%s: %s", command, answer.Error)
		case answer.Return != nil:
			return answer.Return
		case answer.Event != "":
			q.events[answer.Event] = true
		}
	}
	q.t.Fatalf("%s: no answer", command)
	return nil
}

// makeVolume creates a sparse file of 1 GiB with an ext4 file system and returns its path.
func makeVolume(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "volume")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<30); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", path).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %s", out)
	}
	return path
}

// plug plugs a raw disk into a slot of the SCSI controller.
func (q *monitor) plug(slot int, path string) {
	q.t.Helper()
	q.do(fmt.Sprintf(`{"execute": "blockdev-add", "arguments": {"driver": "raw", "node-name": "v%d", "file": {"driver": "file", "filename": %q}}}`, slot, path))
	q.do(fmt.Sprintf(`{"execute": "device_add", "arguments": {"driver": "scsi-hd", "bus": "scsi0.0", "scsi-id": %d, "drive": "v%d", "id": "d%d"}}`, slot, slot, slot))
}

func (q *monitor) unplug(slot int) {
	q.t.Helper()
	delete(q.events, "DEVICE_DELETED")
	q.do(fmt.Sprintf(`{"execute": "device_del", "arguments": {"id": "d%d"}}`, slot))
	eventually(q.t, "the disk is gone", func() bool {
		q.do(`{"execute": "query-status"}`)
		return q.events["DEVICE_DELETED"]
	})
	q.do(fmt.Sprintf(`{"execute": "blockdev-del", "arguments": {"node-name": "v%d"}}`, slot))
}
