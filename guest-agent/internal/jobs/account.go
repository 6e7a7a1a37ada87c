// Looks up the account that a job runs as, in the image's /etc/passwd and /etc/group. The files are read again for each
// job, because jobs may change them. An image without these files still has the account root.

package jobs

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDatabase is how many bytes of /etc/passwd or /etc/group are read at most, because a hostile image may make them
// huge.
const maxDatabase = 4 << 20

type account struct {
	name   string
	uid    uint32
	gid    uint32
	groups []uint32
	home   string
	shell  string
}

// findAccount resolves spec in the files below the directory root. spec is a user or user:group, each given by name or
// id. An empty spec means the account root.
func findAccount(root, spec string) (account, error) {
	if spec == "" {
		spec = "root"
	}
	passwd := readDatabase(root + "/etc/passwd")
	found, ok := searchPasswd(passwd, spec)
	if !ok {
		var err error
		if found, err = accountWithoutEntry(root, passwd, spec); err != nil {
			return account{}, err
		}
	}
	if found.name != "" {
		found.groups = searchGroups(readDatabase(root+"/etc/group"), found.name)
	}
	return found, nil
}

// accountWithoutEntry resolves a spec that is no name or uid in passwd: user:group, or a uid without an entry.
func accountWithoutEntry(root, passwd, spec string) (account, error) {
	user, group, hasGroup := strings.Cut(spec, ":")
	found, ok := searchPasswd(passwd, user)
	if !ok {
		uid, err := strconv.ParseUint(user, 10, 32)
		switch {
		case user == "root":
			found = account{name: "root", home: "/root", shell: "/bin/sh"}
		case err != nil:
			return account{}, invalid("no such user: " + spec)
		default:
			found = account{uid: uint32(uid), home: "/", shell: "/bin/sh"}
		}
	}
	if !hasGroup {
		return found, nil
	}
	gid, ok := searchGroup(readDatabase(root+"/etc/group"), group)
	if !ok {
		return account{}, invalid("no such group: " + group)
	}
	found.gid = gid
	return found, nil
}

// searchGroup returns the id of the group with this name. If no group has it, the name itself must be a group id.
func searchGroup(groups, wanted string) (uint32, bool) {
	for line := range strings.Lines(groups) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) < 4 || fields[0] != wanted || wanted == "" {
			continue
		}
		if gid, err := strconv.ParseUint(fields[2], 10, 32); err == nil {
			return uint32(gid), true
		}
	}
	gid, err := strconv.ParseUint(wanted, 10, 32)
	return uint32(gid), err == nil
}

// searchPasswd returns the entry with this name, or else the entry with this uid.
func searchPasswd(passwd, wanted string) (account, bool) {
	var byUID account
	foundUID := false
	for line := range strings.Lines(passwd) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) < 7 || (fields[0] != wanted && (foundUID || fields[2] != wanted)) {
			continue
		}
		entry, ok := parseEntry(fields)
		if !ok {
			continue
		}
		if fields[0] == wanted {
			return entry, true
		}
		byUID, foundUID = entry, true
	}
	return byUID, foundUID
}

func parseEntry(fields []string) (account, bool) {
	uid, errUID := strconv.ParseUint(fields[2], 10, 32)
	gid, errGID := strconv.ParseUint(fields[3], 10, 32)
	if errUID != nil || errGID != nil {
		return account{}, false
	}
	entry := account{name: fields[0], uid: uint32(uid), gid: uint32(gid), home: fields[5], shell: fields[6]}
	if entry.home == "" {
		entry.home = "/"
	}
	if entry.shell == "" {
		entry.shell = "/bin/sh"
	}
	return entry, true
}

// searchGroups returns the ids of the groups that list the account called name as a member.
func searchGroups(group, name string) []uint32 {
	var ids []uint32
	for line := range strings.Lines(group) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) < 4 || fields[3] == "" {
			continue
		}
		for member := range strings.SplitSeq(fields[3], ",") {
			if member != name {
				continue
			}
			if gid, err := strconv.ParseUint(fields[2], 10, 32); err == nil {
				ids = append(ids, uint32(gid))
			}
			break
		}
	}
	return ids
}

// readDatabase returns the content of a file, or an empty string if the image does not have it. It makes only the system
// calls that it needs, because every job waits for two such files.
func readDatabase(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if unix.Fstat(fd, &info) != nil || info.Mode&unix.S_IFMT != unix.S_IFREG {
		return ""
	}
	content := make([]byte, min(info.Size, maxDatabase))
	length := 0
	for length < len(content) {
		n, err := unix.Pread(fd, content[length:], int64(length))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return ""
		}
		if n == 0 {
			break // somebody has just shortened the file
		}
		length += n
	}
	return string(content[:length])
}

func (a *account) isPlainRoot() bool { return a.uid == 0 && a.gid == 0 && len(a.groups) == 0 }
