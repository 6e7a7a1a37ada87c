// Package warmup is the program of the warm-up job. A machine from a user's snapshot runs it in place of /bin/sh while
// it has no identity. It runs nothing of the disk. It only reads the files that a first shell needs, so that a template
// has them in its page cache: otherwise the first job of each of its clones would wait 80 ms for them (emulated).
package warmup

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Name is the command line argument with which the guest agent runs as the warm-up program. The program also prints it.
const Name = "warm-up"

// maxRead is how many bytes of a file are read at most, because a user may have made the files huge.
const maxRead = 4 << 20

// shellFiles are the files of a shell and its libraries, with glibc and with musl. Missing ones are skipped.
var shellFiles = [...]string{
	"/bin/sh",
	"/lib64/ld-linux-x86-64.so.2",
	"/etc/ld.so.cache",
	"/lib/x86_64-linux-gnu/libc.so.6",
	"/lib64/libc.so.6",
	"/lib/ld-musl-x86_64.so.1",
}

// Run reads the files and prints a line, as a short command would.
func Run() {
	for _, path := range shellFiles {
		_ = readRegular(path) // a file that cannot be read is skipped
	}
	_, _ = os.Stdout.WriteString(Name + "\n")
}

// readRegular reads a file and forgets its content. It opens nothing but a regular file: to open a device or a pipe can
// have effects or wait for ever.
func readRegular(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EINVAL
	}
	file, err := os.Open("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.CopyBuffer(discard{}, io.LimitReader(file, maxRead), make([]byte, 64<<10))
	return err
}

// discard has no ReadFrom, so that io.CopyBuffer uses the buffer that it is given.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
