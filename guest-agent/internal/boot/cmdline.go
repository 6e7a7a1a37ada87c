// Reads the kernel command line. It carries the settings that a machine needs before the channel to the host is open.

package boot

import "strings"

// options are the settings of the kernel command line that the agent knows.
type options struct {
	root  string // block device of the root file system
	token string // channel token in hexadecimal
}

// parseCommandLine reads the content of /proc/cmdline. As in the kernel, the last value of a repeated setting wins.
func parseCommandLine(line string) options {
	found := options{root: "/dev/vda"}
	for word := range strings.FieldsSeq(line) {
		name, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			continue
		}
		switch name {
		case "root":
			found.root = value
		case "sandbar.channel":
			found.token = value
		}
	}
	return found
}
