// Reads the kernel command line, which names the root device and says whether the machine is bare. It holds no secret,
// because every process of the machine and of the host can read it.

package boot

import (
	"slices"
	"strings"
)

// rootDevice returns the block device of the root file system, given the content of /proc/cmdline. As in the kernel,
// the last value of a repeated setting wins.
func rootDevice(line string) string {
	device := "/dev/vda"
	for word := range strings.FieldsSeq(line) {
		if name, value, _ := strings.Cut(word, "="); name == "root" && value != "" {
			device = value
		}
	}
	return device
}

// isBare reports whether the machine shall mount its root disk only with its identity.
func isBare(line string) bool {
	return slices.Contains(strings.Fields(line), "sandbar.bare")
}
