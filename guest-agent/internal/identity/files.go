// Writes the identity to files of the image, such as /etc/hostname, for programs that read it there. Errors, such as
// those of an unusual image or a full disk, are only logged, because the machine should start without these files too.

package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	hostnamePath  = "/etc/hostname"
	hostsPath     = "/etc/hosts"
	machineIDPath = "/etc/machine-id"
	resolvPath    = "/etc/resolv.conf"
	recordPath    = "/var/lib/sandbar/identity"
)

// identityFiles lists all files of the identity with their modes.
var identityFiles = [...]struct {
	path string
	mode os.FileMode
}{{hostnamePath, 0o644}, {hostsPath, 0o644}, {machineIDPath, 0o444}, {resolvPath, 0o644}, {recordPath, 0o600}}

// writeFiles writes the identity to its files below the folder root, and returns the errors. It also deletes the secrets
// of another machine, unless isClean says that there are none.
func writeFiles(root string, request *Request, isClean bool) (failures []error) {
	try := func(err error) {
		if err != nil {
			failures = append(failures, err)
		}
	}
	if !isClean && isAnotherMachine(root, request.SystemID) {
		for _, err := range forgetSecrets(root) {
			try(err)
		}
	}
	hosts, err := os.ReadFile(root + hostsPath)
	if err != nil && !os.IsNotExist(err) {
		try(err)
	}
	try(setFile(root+hostnamePath, request.Hostname+"\n", 0o644))
	try(setFile(root+hostsPath, hostsWith(string(hosts), request.Hostname), 0o644))
	try(setFile(root+machineIDPath, systemMachineID(request.SystemID)+"\n", 0o444))
	try(setFile(root+resolvPath, resolvConf(request.DNS), 0o644))
	try(setFile(root+recordPath, request.SystemID+"\n", 0o600))
	return failures
}

func isAnotherMachine(root, systemID string) bool {
	record, err := os.ReadFile(root + recordPath)
	return err != nil || strings.TrimSpace(string(record)) != systemID
}

// forgetSecrets deletes SSH host keys and the random seed of systemd, because two machines must not share them. The
// programs of the image have to make new ones.
func forgetSecrets(root string) (failures []error) {
	secrets, _ := filepath.Glob(root + "/etc/ssh/ssh_host_*_key") // the pattern is well formed
	for _, key := range secrets {
		secrets = append(secrets, key+".pub")
	}
	secrets = append(secrets, root+"/var/lib/systemd/random-seed")
	for _, path := range secrets {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			failures = append(failures, err)
		}
	}
	return failures
}

// systemMachineID returns the 32 hexadecimal digits for /etc/machine-id. A UUID gives its own digits, any other id
// those of a hash.
func systemMachineID(systemID string) string {
	digits := strings.ToLower(strings.ReplaceAll(systemID, "-", ""))
	if raw, err := hex.DecodeString(digits); err == nil && len(raw) == 16 {
		return digits
	}
	hash := sha256.Sum256([]byte(systemID))
	return hex.EncodeToString(hash[:16])
}

// hostsWith returns the content of a hosts file with hostname as the name of 127.0.1.1. It keeps all other lines, and
// adds localhost when it is missing.
func hostsWith(hosts, hostname string) string {
	var kept strings.Builder
	hasLocalhost := false
	for line := range strings.Lines(hosts) {
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] == "127.0.1.1" {
			continue
		}
		hasLocalhost = hasLocalhost || len(fields) > 1 && fields[0] == "127.0.0.1"
		kept.WriteString(strings.TrimSuffix(line, "\n"))
		kept.WriteByte('\n')
	}
	own := "127.0.1.1\t" + hostname + "\n"
	if hasLocalhost {
		return kept.String() + own
	}
	return "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" + kept.String() + own
}

func resolvConf(servers []string) string {
	var content strings.Builder
	for _, server := range servers {
		content.WriteString("nameserver ")
		content.WriteString(server)
		content.WriteByte('\n')
	}
	return content.String()
}

// setFile gives a file the content and mode. It overwrites a regular file in place, because a rename of a new file over
// it would force a slow write to the disk. Nobody can read the half-written file: on a machine without an identity no
// program runs yet, and on others the content is usually the same. A file with the right content is not written at all,
// so that a restart of a machine writes nothing.
func setFile(path, content string, mode os.FileMode) error {
	done, err := overwrite(path, content, uint32(mode))
	if done || err != nil {
		return err
	}
	return replaceFile(path, content, mode)
}

// overwrite writes content into an existing file. It reports false if path is not a regular file, or has other hard
// links.
func overwrite(path, content string, mode uint32) (done bool, err error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, nil
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink != 1 {
		return false, nil
	}
	if stat.Mode&0o7777 != mode {
		if err := unix.Fchmod(fd, mode); err != nil {
			return false, err
		}
	}
	old := make([]byte, len(content))
	if n, err := unix.Pread(fd, old, 0); err == nil && stat.Size == int64(len(content)) && string(old[:n]) == content {
		return true, nil
	}
	if n, err := unix.Pwrite(fd, []byte(content), 0); err != nil || n < len(content) {
		return false, err
	}
	if stat.Size > int64(len(content)) {
		return true, unix.Ftruncate(fd, int64(len(content)))
	}
	return true, nil
}

// replaceFile puts a new file at path. If path is a symbolic link, it replaces the link, not its target.
func replaceFile(path, content string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".sandbar-new"
	_ = os.Remove(next) // left by an attempt that a power-off interrupted
	if err := os.WriteFile(next, []byte(content), mode); err != nil {
		_ = os.Remove(next)
		return err
	}
	if err := os.Chmod(next, mode); err != nil {
		return err
	}
	return os.Rename(next, path)
}
