package process

import (
	"strconv"
	"strings"
)

// UserNames returns the name of each user of the machine whose files are below the directory root. Where several users
// have the same uid, the first one counts.
func UserNames(root string) map[uint32]string { return namesOf(readDatabase(root + "/etc/passwd")) }

// GroupNames returns the name of each group of the machine, like UserNames.
func GroupNames(root string) map[uint32]string { return namesOf(readDatabase(root + "/etc/group")) }

// maxName is the length of the longest name that is returned, in bytes. Programs such as useradd allow 32.
const maxName = 256

// namesOf reads lines such as "name:x:id:…", which both databases have.
func namesOf(database string) map[uint32]string {
	names := map[uint32]string{}
	for line := range strings.Lines(database) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 4)
		if len(fields) < 4 || fields[0] == "" || len(fields[0]) > maxName {
			continue
		}
		id, err := strconv.ParseUint(fields[2], 10, 32)
		if _, found := names[uint32(id)]; err == nil && !found {
			names[uint32(id)] = fields[0]
		}
	}
	return names
}
