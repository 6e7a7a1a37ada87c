// Package mounttable reads what is mounted where. The kernel is asked each time: a program of the machine may mount and
// unmount what it likes.
package mounttable

import (
	"os"
	"strings"
)

// Mount is a line of a mount table.
type Mount struct {
	Device string // its number, such as 8:0
	Path   string
	Source string // such as /dev/sda
}

// Own returns the mounts that this process sees, in the order in which they were made.
func Own() ([]Mount, error) { return Read("/proc/self/mountinfo") }

// Read returns the mounts of a file like /proc/PID/mountinfo.
func Read(path string) ([]Mount, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(string(content)), nil
}

// parse reads lines of: id, parent, device, root, mount point, options, more fields, "-", type, source, options (proc(5)).
func parse(table string) []Mount {
	var found []Mount
	for line := range strings.Lines(table) {
		place, kind, _ := strings.Cut(line, " - ")
		fields, rest := strings.Fields(place), strings.Fields(kind)
		if len(fields) > 4 && len(rest) > 1 {
			found = append(found, Mount{Device: fields[2], Path: unescape.Replace(fields[4]), Source: unescape.Replace(rest[1])})
		}
	}
	return found
}

// unescape undoes the octal escapes of the kernel's mount table.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
