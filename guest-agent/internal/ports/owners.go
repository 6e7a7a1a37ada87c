// Finds the processes that listening sockets belong to.

package ports

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// searchLimit is how long the search for processes may take. Listeners that are not found until then have no process.
	searchLimit = time.Second
	// maxDescriptors bounds the file descriptors that one search looks at.
	maxDescriptors = 50_000
	// readAtOnce is how many file descriptors of a process are read from the kernel at a time.
	readAtOnce = 256
	maxName    = 64
)

// findOwners returns the names of the processes that have the sockets, by the inode of the socket. Several processes may
// share a socket; the one with the lowest pid counts, which usually started the others.
func findOwners(ctx context.Context, listeners []listener) map[uint64]string {
	wanted := map[string]uint64{}
	for _, l := range listeners {
		wanted["socket:["+strconv.FormatUint(l.inode, 10)+"]"] = l.inode
	}
	names := map[uint64]string{}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return names
	}
	search := search{wanted: wanted, names: names, left: maxDescriptors, deadline: time.Now().Add(searchLimit)}
	for _, pid := range sortedPids(processes) {
		if len(wanted) == 0 || ctx.Err() != nil || search.isOver() {
			break
		}
		search.lookAt("/proc/" + strconv.Itoa(pid))
	}
	return names
}

// sortedPids returns the pids among the entries of /proc. os.ReadDir sorts by name, where 10 comes before 9.
func sortedPids(entries []os.DirEntry) []int {
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

type search struct {
	// wanted has the sockets that are not found yet, by the text of their links in /proc.
	wanted   map[string]uint64
	names    map[uint64]string
	left     int
	deadline time.Time
}

func (s *search) isOver() bool { return s.left <= 0 || time.Now().After(s.deadline) }

// lookAt compares the file descriptors of a process with the wanted sockets.
func (s *search) lookAt(process string) {
	folder, err := os.Open(process + "/fd")
	if err != nil {
		return // the process has ended
	}
	defer func() { _ = folder.Close() }()
	for !s.isOver() && len(s.wanted) > 0 {
		names, _ := folder.Readdirnames(readAtOnce)
		if len(names) == 0 {
			return
		}
		for _, name := range names {
			s.left--
			link, err := os.Readlink(process + "/fd/" + name)
			inode, found := s.wanted[link]
			if err != nil || !found {
				continue
			}
			delete(s.wanted, link)
			s.names[inode] = readName(process)
		}
	}
}

func readName(process string) string {
	content, _ := os.ReadFile(process + "/comm")
	return printable(strings.TrimSuffix(string(content), "\n"))
}

// printable makes a name safe for lists and error messages. Programs of the machine choose their names.
func printable(name string) string {
	runes := []rune(strings.ToValidUTF8(name, "?"))
	for i, r := range runes {
		if !strconv.IsPrint(r) {
			runes[i] = '?'
		}
	}
	if len(runes) > maxName {
		runes = runes[:maxName]
	}
	return string(runes)
}
