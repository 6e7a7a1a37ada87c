package files

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The name of a temporary file has 16 hexadecimal digits between these two parts.
const (
	temporaryPrefix = ".sandbar-"
	temporarySuffix = ".tmp"
	temporaryDigits = 16
)

func isTemporaryName(name string) bool {
	digits, hasPrefix := strings.CutPrefix(name, temporaryPrefix)
	digits, hasSuffix := strings.CutSuffix(digits, temporarySuffix)
	return hasPrefix && hasSuffix && len(digits) == temporaryDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

const (
	// maxSwept is how many folders are remembered. After that many, all are forgotten.
	maxSwept = 4096
	// maxSweptNames is how many names of a folder are looked at, so that no write waits long.
	maxSweptNames = 20_000
)

// leftovers removes temporary files that are left of an earlier boot, when the machine was cut off in the middle of a
// write. It looks into each folder once, before the first write to it.
type leftovers struct {
	mu    sync.Mutex
	swept map[[2]uint64]struct{} // device and inode of each folder that was looked into
	inUse map[string]struct{}    // names of temporary files of this boot
}

// newName returns a name for a temporary file. A file with this name does not count as a leftover until drop is called
// with the name.
func (l *leftovers) newName() string {
	var random [temporaryDigits / 2]byte
	_, _ = rand.Read(random[:]) // never fails
	name := temporaryPrefix + hex.EncodeToString(random[:]) + temporarySuffix
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inUse == nil {
		l.inUse = map[string]struct{}{}
	}
	l.inUse[name] = struct{}{}
	return name
}

func (l *leftovers) drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.inUse, name)
}

// sweep removes the leftovers in a folder. Errors do not matter, because the write goes on without it.
func (l *leftovers) sweep(above int) {
	var info unix.Stat_t
	if unix.Fstat(above, &info) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := [2]uint64{info.Dev, info.Ino}
	if _, isSwept := l.swept[key]; isSwept {
		return
	}
	if l.swept == nil || len(l.swept) == maxSwept {
		l.swept = map[[2]uint64]struct{}{}
	}
	l.swept[key] = struct{}{}
	folder, err := openToRead(above, ".")
	if err != nil {
		return
	}
	defer unix.Close(folder)
	seen := 0
	_ = readNames(folder, func(name string) error {
		if seen++; seen > maxSweptNames {
			return unix.E2BIG
		}
		if _, isInUse := l.inUse[name]; isTemporaryName(name) && !isInUse {
			_ = unix.Unlinkat(folder, name, 0)
		}
		return nil
	})
}
