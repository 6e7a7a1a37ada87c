// Accounts are read from the image's own files for every job, as the jobs themselves change them. An image without
// any still has its root.

package jobs

import (
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// maxDatabase bounds what is read of a file that the image may have made anything of, in bytes.
const maxDatabase = 4 << 20

type account struct {
	name   string
	uid    uint32
	gid    uint32
	groups []uint32
	home   string
	shell  string
}

// findAccount resolves a name or a uid, or one with a group behind a colon, below the root directory; an empty spec is
// root.
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

// accountWithoutEntry resolves what is not simply the name or uid of an entry: user:group, each by name or by id.
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

// searchGroup finds the group of that name or, failing that, takes the name for its id.
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

// searchPasswd finds the entry whose name or, failing that, uid is wanted.
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

// searchGroups returns the ids of the groups that list name as a member.
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

// readDatabase returns the text of a file, or nothing: an image need not have it.
func readDatabase(path string) string {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	content, err := io.ReadAll(io.LimitReader(file, maxDatabase))
	if err != nil {
		return ""
	}
	return string(content)
}

func (a *account) isPlainRoot() bool { return a.uid == 0 && a.gid == 0 && len(a.groups) == 0 }
