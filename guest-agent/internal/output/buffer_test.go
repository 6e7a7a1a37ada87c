package output

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/freeze"
)

func randomBytes(n int) []byte {
	data := make([]byte, n)
	source := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(source.Uint32())
	}
	return data
}

func appendAll(t *testing.T, b *Buffer, data []byte) {
	t.Helper()
	if n, err := b.Append(data); n != len(data) || err != nil {
		t.Fatalf("append: %d of %d bytes, %v", n, len(data), err)
	}
}

func readAll(t *testing.T, b *Buffer, offset int64) []byte {
	t.Helper()
	var all []byte
	p := make([]byte, 60_000)
	for {
		n, err := b.ReadAt(p, offset)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all = append(all, p[:n]...)
		offset += int64(n)
	}
}

func TestEveryByteIsKeptAcrossMemoryAndDisk(t *testing.T) {
	b := NewBuffer(1<<30, t.TempDir(), new(freeze.Gate))
	want := randomBytes(9<<20 + 123)
	for rest := want; len(rest) > 0; {
		n := min(len(rest), 1+rand.IntN(100_000))
		appendAll(t, b, rest[:n])
		rest = rest[n:]
	}
	if b.inMemory > memoryLimit {
		t.Fatalf("%d bytes in memory", b.inMemory)
	}
	for _, offset := range []int64{0, 1, memoryLimit - 1, memoryLimit, 5 << 20, int64(len(want))} {
		if !bytes.Equal(readAll(t, b, offset), want[offset:]) {
			t.Fatalf("other bytes from %d on", offset)
		}
	}
}

func TestAcknowledgedSpaceIsUsedAgain(t *testing.T) {
	b := NewBuffer(1<<30, t.TempDir(), new(freeze.Gate))
	want := randomBytes(12 << 20)
	var acknowledged int64
	for written := 0; written < len(want); written += 100_000 {
		appendAll(t, b, want[written:min(len(want), written+100_000)])
		_, end, _ := b.Extent()
		if end-acknowledged > 3<<20 {
			acknowledged += int64(rand.IntN(int(end - acknowledged)))
			if err := b.Acknowledge(acknowledged); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(readAll(t, b, acknowledged), want[acknowledged:end]) {
				t.Fatalf("other bytes from %d on", acknowledged)
			}
		}
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(b.spill.file.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	_, end, _ := b.Extent()
	if used := stat.Blocks * 512; used > end-acknowledged+2*blockSize {
		t.Errorf("%d bytes of disk for %d bytes of backlog", used, end-acknowledged)
	}
	if err := b.Acknowledge(end); err != nil {
		t.Fatal(err)
	}
	if b.spill.file != nil || b.inMemory != 0 || len(b.segments) != 0 {
		t.Error("an empty backlog holds resources")
	}
}

func TestAcknowledge(t *testing.T) {
	b := NewBuffer(1<<20, t.TempDir(), new(freeze.Gate))
	appendAll(t, b, []byte("hello"))
	if err := b.Acknowledge(6); !errors.Is(err, ErrAhead) {
		t.Errorf("ahead of the end: %v", err)
	}
	if err := errors.Join(b.Acknowledge(3), b.Acknowledge(2)); err != nil {
		t.Errorf("in order and repeated: %v", err)
	}
	if _, err := b.ReadAt(make([]byte, 1), 2); !errors.Is(err, ErrAcknowledged) {
		t.Errorf("read below: %v", err)
	}
	if got := readAll(t, b, 3); string(got) != "lo" {
		t.Errorf("read from there: %q", got)
	}
}

func TestBytesPastTheLimitAreDropped(t *testing.T) {
	b := NewBuffer(3, t.TempDir(), new(freeze.Gate))
	appendAll(t, b, []byte("abc"))
	if _, _, truncated := b.Extent(); truncated {
		t.Error("truncated at exactly the limit")
	}
	appendAll(t, b, []byte("def"))
	if _, end, truncated := b.Extent(); !truncated || end != 3 {
		t.Errorf("end %d, truncated %v", end, truncated)
	}
}

func TestUnwritableSpillPushesBack(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := NewBuffer(1<<30, blocked, new(freeze.Gate))
	data := randomBytes(2 << 20)
	n, err := b.Append(data)
	if !errors.Is(err, ErrFull) || n == 0 || n > memoryLimit {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if err := b.Acknowledge(int64(n)); err != nil {
		t.Fatal(err)
	}
	more, err := b.Append(data[n:])
	if more == 0 {
		t.Fatalf("no space after an acknowledgement: %v", err)
	}
	if got := readAll(t, b, int64(n)); !bytes.Equal(got, data[n:n+more]) {
		t.Error("other bytes after push-back")
	}
}

func TestSealKeepsTheBytes(t *testing.T) {
	b := NewBuffer(1<<20, t.TempDir(), new(freeze.Gate))
	want := randomBytes(5000)
	appendAll(t, b, want)
	b.Seal()
	if b.inMemory > 2*smallPiece {
		t.Errorf("%d bytes of memory for %d", b.inMemory, len(want))
	}
	if !bytes.Equal(readAll(t, b, 0), want) {
		t.Error("other bytes")
	}
}
