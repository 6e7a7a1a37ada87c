// Package mounttable reads the kernel's table of mounts. It caches nothing, because any program of the machine may
// mount and unmount file systems.
package mounttable

import (
	"os"
	"strings"
)

// Mount is one entry of a mount table.
type Mount struct {
	Device string // device number, such as 8:0
	Path   string // mount point
	Source string // such as /dev/sda
}

// Own returns the mounts that the agent sees, in the order in which they were mounted.
func Own() ([]Mount, error) { return Read("/proc/self/mountinfo") }

// Read returns the mounts of a file like /proc/PID/mountinfo.
func Read(path string) ([]Mount, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(string(content)), nil
}

// parse reads a mount table and skips malformed lines. The fields of a line are: id, parent, device, root, mount point,
// options, any number of optional fields, "-", type, source, options (proc(5)).
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

// unescape replaces the octal escapes of the kernel's mount table.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
