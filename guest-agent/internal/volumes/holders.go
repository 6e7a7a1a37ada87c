// Finds the processes that prevent an unmount, and describes them for the owner of the machine.

package volumes

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sandbar/guest-agent/internal/mounttable"
)

const (
	maxHolders = 5
	// searchLimit is how long the search may take. It matters on machines with very many open files.
	searchLimit = 3 * time.Second
	maxName     = 100
)

// busy returns the error for a volume that is in use. held describes the processes that use it.
func busy(held []string) error {
	if len(held) == 0 {
		held = []string{"something in the kernel, such as a swap file, a loop device or a mount in a container"}
	}
	more := ""
	if len(held) > maxHolders {
		held, more = held[:maxHolders], ", and others"
	}
	return conflict("the volume is busy: " + strings.Join(held, ", ") + more)
}

// holders describes the processes that use the file system on the device, each with one reason, until it has more than
// maxHolders.
func holders(number string) []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	wanted, ok := parseNumber(number)
	if !ok {
		return nil
	}
	own, _ := os.Readlink("/proc/self/ns/mnt")
	var held []string
	for deadline := time.Now().Add(searchLimit); len(entries) > 0 && len(held) <= maxHolders; entries = entries[1:] {
		if time.Now().After(deadline) {
			break
		}
		pid := entries[0].Name()
		if pid[0] < '0' || pid[0] > '9' {
			continue
		}
		p := process{folder: "/proc/" + pid, number: number, device: wanted}
		if reason := p.reason(own); reason != "" {
			held = append(held, p.name()+" (pid "+pid+"): "+reason)
		}
	}
	return held
}

func parseNumber(number string) (uint64, bool) {
	major, minor, _ := strings.Cut(number, ":")
	a, errA := strconv.ParseUint(major, 10, 32)
	b, errB := strconv.ParseUint(minor, 10, 32)
	return unix.Mkdev(uint32(a), uint32(b)), errA == nil && errB == nil
}

// process is a process that may use the file system on a device.
type process struct {
	folder string
	number string
	device uint64
}

// reason says how the process uses the file system, or returns an empty string if it does not. own is the mount
// namespace of the agent.
func (p process) reason(own string) string {
	if path, ok := p.openFile(); ok {
		return "open file " + printable(path)
	}
	if p.isOn("cwd") {
		return "working folder"
	}
	if p.isOn("root") {
		return "root folder"
	}
	if p.mapsFile() {
		return "mapped file"
	}
	if space, err := os.Readlink(p.folder + "/ns/mnt"); err == nil && space != own {
		mounts, _ := mounttable.Read(p.folder + "/mountinfo")
		for _, m := range mounts {
			if m.Device == p.number {
				return "another mount at " + printable(m.Path)
			}
		}
	}
	return ""
}

func (p process) openFile() (path string, ok bool) {
	folder := p.folder + "/fd/"
	files, _ := os.ReadDir(folder) // fails if the process has ended
	for _, file := range files {
		if p.isOn("fd/" + file.Name()) {
			path, _ := os.Readlink(folder + file.Name())
			return path, true
		}
	}
	return "", false
}

// isOn reports whether a link of the process in /proc leads to a file on the file system. AT_STATX_DONT_SYNC keeps
// statx from asking the server of a network file system, which may never answer.
func (p process) isOn(link string) bool {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, filepath.Join(p.folder, link), unix.AT_STATX_DONT_SYNC, 0, &stat)
	return err == nil && unix.Mkdev(stat.Dev_major, stat.Dev_minor) == p.device
}

func (p process) mapsFile() bool {
	content, _ := os.ReadFile(p.folder + "/maps")
	field := " " + hexadecimal(unix.Major(p.device)) + ":" + hexadecimal(unix.Minor(p.device)) + " "
	return strings.Contains(string(content), field)
}

// hexadecimal formats a part of a device number as /proc/PID/maps does, with at least two digits.
func hexadecimal(part uint32) string {
	text := strconv.FormatUint(uint64(part), 16)
	if len(text) < 2 {
		return "0" + text
	}
	return text
}

func (p process) name() string {
	content, _ := os.ReadFile(p.folder + "/comm")
	return printable(strings.TrimSuffix(string(content), "\n"))
}

// printable makes a name safe for an error message. Programs of the machine choose such names, so they may be long or
// have control characters.
func printable(name string) string {
	runes := []rune(strings.ToValidUTF8(name, "?"))
	for i, r := range runes {
		if !strconv.IsPrint(r) {
			runes[i] = '?'
		}
	}
	if len(runes) > maxName {
		runes = append(runes[:maxName], '…')
	}
	return string(runes)
}
