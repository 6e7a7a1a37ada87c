package output

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/freeze"
)

// blockSize is the size of a file system block in bytes. A hole in a file frees only whole blocks.
const blockSize = 4 << 10

// spillFile is an unnamed file with a part of the stream. Each byte is at the same offset as in the stream; the rest of
// the file is holes. It is created at the first write, and the kernel deletes it when the agent ends. While the root
// file system is frozen it can be read, but bytes can be neither written nor freed.
type spillFile struct {
	directory string
	gate      *freeze.Gate
	file      *os.File
	punched   int64 // all blocks below this offset are freed
}

func (s *spillFile) write(data []byte, offset int64) (int, error) {
	if !s.gate.Enter() {
		return 0, ErrFull
	}
	defer s.gate.Leave()
	if s.file == nil {
		file, err := openNameless(s.directory)
		if err != nil {
			return 0, err
		}
		s.file = file
	}
	return s.file.WriteAt(data, offset)
}

func (s *spillFile) read(p []byte, offset int64) (int, error) {
	n, err := s.file.ReadAt(p, offset)
	if err == io.EOF && n == len(p) {
		err = nil
	}
	return n, err
}

// punch frees the blocks below end. If it cannot do so now, the next punch or close will.
func (s *spillFile) punch(end int64) {
	end -= end % blockSize
	if end <= s.punched || !s.gate.Enter() {
		return
	}
	defer s.gate.Leave()
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if unix.Fallocate(int(s.file.Fd()), mode, s.punched, end-s.punched) == nil {
		s.punched = end
	}
}

func (s *spillFile) close() {
	if s.file != nil {
		file := s.file
		s.gate.Later(func() { _ = file.Close() }) // errors do not matter: nobody needs the content any more
		s.file, s.punched = nil, 0
	}
}

func openNameless(directory string) (*os.File, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	fd, err := unix.Open(directory, unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "spill"), nil
	}
	if err != unix.EOPNOTSUPP && err != unix.EISDIR {
		return nil, err
	}
	file, err := os.CreateTemp(directory, "spill-")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}
