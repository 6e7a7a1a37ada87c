// To make a control group takes the kernel as long as a third of a fork, so a job takes a group that was made before it.

package process

import (
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Spares keeps one empty control group ready. Its groups have the numbers 1, 2, … after a prefix.
type Spares struct {
	groups Groups
	prefix string

	mu    sync.Mutex
	last  int    // number of the last group
	ready *spare // nil: none
}

type spare struct {
	group     Group
	directory *os.File
}

// isThere reports whether the path of the group still leads to its open directory.
func (s *spare) isThere() bool {
	var open, named unix.Stat_t
	return unix.Fstat(int(s.directory.Fd()), &open) == nil && unix.Stat(s.group.path, &named) == nil &&
		open.Ino == named.Ino
}

// NewSpares returns Spares whose groups have names with this prefix. The first Take or Refill makes the first group.
func NewSpares(groups Groups, prefix string) *Spares {
	return &Spares{groups: groups, prefix: prefix}
}

// Take returns an empty group and its open directory, as Make does.
func (s *Spares) Take() (Group, *os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ready := s.ready; ready != nil {
		s.ready = nil
		if ready.isThere() {
			return ready.group, ready.directory, nil
		}
		_ = ready.directory.Close() // a program of the machine has removed the group, or made another one
	}
	return s.make()
}

// Refill makes the group that the next Take returns. If that fails, Take tries again and returns the error.
func (s *Spares) Refill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready != nil {
		return
	}
	if group, directory, err := s.make(); err == nil {
		s.ready = &spare{group, directory}
	}
}

func (s *Spares) make() (Group, *os.File, error) {
	s.last++
	return s.groups.Make(s.prefix + strconv.Itoa(s.last))
}
