// Looks up the account that a program runs as, in the image's /etc/passwd and /etc/group. The files are read again for
// each program, because programs may change them. An image without these files still has the account root.

package process

import (
	"iter"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDatabase is how many bytes of /etc/passwd or /etc/group are read at most, because a hostile image may make them
// huge.
const maxDatabase = 4 << 20

// Account is an account of the machine.
type Account struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32
	Home   string
	Shell  string
}

// FindAccount resolves spec in the files below the directory root. spec is a user or user:group, each given by name or
// id. An empty spec means the account root.
func FindAccount(root, spec string) (Account, error) {
	if spec == "" {
		spec = "root"
	}
	passwd := readDatabase(root + "/etc/passwd")
	found, ok := searchPasswd(passwd, spec)
	if !ok {
		var err error
		if found, err = accountWithoutEntry(root, passwd, spec); err != nil {
			return Account{}, err
		}
	}
	if found.Name != "" {
		found.Groups = searchGroups(readDatabase(root+"/etc/group"), found.Name)
	}
	return found, nil
}

// accountWithoutEntry resolves a spec that is no name or uid in passwd: user:group, or a uid without an entry.
func accountWithoutEntry(root, passwd, spec string) (Account, error) {
	user, group, hasGroup := strings.Cut(spec, ":")
	found, ok := searchPasswd(passwd, user)
	if !ok {
		uid, err := strconv.ParseUint(user, 10, 32)
		switch {
		case user == "root":
			found = Account{Name: "root", Home: "/root", Shell: "/bin/sh"}
		case err != nil:
			return Account{}, invalid("no such user: " + spec)
		default:
			found = Account{UID: uint32(uid), Home: "/", Shell: "/bin/sh"}
		}
	}
	if !hasGroup {
		return found, nil
	}
	gid, ok := searchGroup(readDatabase(root+"/etc/group"), group)
	if !ok {
		return Account{}, invalid("no such group: " + group)
	}
	found.GID = gid
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
func searchPasswd(passwd, wanted string) (Account, bool) {
	var byUID Account
	foundUID := false
	for line := range linesWith(passwd, wanted) {
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

func parseEntry(fields []string) (Account, bool) {
	uid, errUID := strconv.ParseUint(fields[2], 10, 32)
	gid, errGID := strconv.ParseUint(fields[3], 10, 32)
	if errUID != nil || errGID != nil {
		return Account{}, false
	}
	entry := Account{Name: fields[0], UID: uint32(uid), GID: uint32(gid), Home: fields[5], Shell: fields[6]}
	if entry.Home == "" {
		entry.Home = "/"
	}
	if entry.Shell == "" {
		entry.Shell = "/bin/sh"
	}
	return entry, true
}

// searchGroups returns the ids of the groups that list the account called name as a member.
func searchGroups(group, name string) []uint32 {
	var ids []uint32
	for line := range linesWith(group, name) {
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

// linesWith returns the lines that contain text, with their line breaks. Every job waits for the search of two files, and
// nearly all of their lines are about other accounts, so only these few lines are split into fields.
func linesWith(content, text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for content != "" {
			at := strings.Index(content, text)
			if at < 0 {
				return
			}
			begin := strings.LastIndexByte(content[:at], '\n') + 1
			end := len(content)
			if length := strings.IndexByte(content[at:], '\n'); length >= 0 {
				end = at + length + 1
			}
			if !yield(content[begin:end]) {
				return
			}
			content = content[end:]
		}
	}
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

// isPlainRoot reports whether the account is root with no other groups, as the agent itself is.
func (a *Account) isPlainRoot() bool { return a.UID == 0 && a.GID == 0 && len(a.Groups) == 0 }
