// The image's own files repeat the identity for its programs. An image may be odd or its disk full, so none of
// them is worth a machine that does not start: errors are for the log.

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

// identityFiles are all of them, with their modes.
var identityFiles = [...]struct {
	path string
	mode os.FileMode
}{{hostnamePath, 0o644}, {hostsPath, 0o644}, {machineIDPath, 0o444}, {resolvPath, 0o644}, {recordPath, 0o600}}

// writeFiles brings the files below root in line with the identity, and returns what went wrong.
func writeFiles(root string, request *Request) (failures []error) {
	try := func(err error) {
		if err != nil {
			failures = append(failures, err)
		}
	}
	if isAnotherMachine(root, request.MachineID) {
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
	try(setFile(root+machineIDPath, systemMachineID(request.MachineID)+"\n", 0o444))
	try(setFile(root+resolvPath, resolvConf(request.DNS), 0o644))
	try(setFile(root+recordPath, request.MachineID+"\n", 0o600))
	return failures
}

func isAnotherMachine(root, machineID string) bool {
	record, err := os.ReadFile(root + recordPath)
	return err != nil || strings.TrimSpace(string(record)) != machineID
}

// forgetSecrets deletes what would be the same secret on two machines. To make new ones is up to the image.
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

// systemMachineID returns the 32 hexadecimal digits that /etc/machine-id needs: those of a UUID, else of a hash.
func systemMachineID(machineID string) string {
	digits := strings.ToLower(strings.ReplaceAll(machineID, "-", ""))
	if raw, err := hex.DecodeString(digits); err == nil && len(raw) == 16 {
		return digits
	}
	hash := sha256.Sum256([]byte(machineID))
	return hex.EncodeToString(hash[:16])
}

// hostsWith returns the hosts file with the machine's own name on 127.0.1.1, and every other line as it was.
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

// setFile makes a file what it should be. A regular file is overwritten where it lies, because a new one in its place
// would be forced to the disk by the rename; nobody reads it meanwhile but in a machine that is itself already, where
// there is nothing to change. A file that has the content already is not touched, so that a restart of a machine
// writes nothing.
func setFile(path, content string, mode os.FileMode) error {
	done, err := overwrite(path, content, uint32(mode))
	if done || err != nil {
		return err
	}
	return replaceFile(path, content, mode)
}

// overwrite reports false if there is no regular file with this one name.
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

// replaceFile puts a new file at path, also if a symbolic link is in its place.
func replaceFile(path, content string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".sandbar-new"
	_ = os.Remove(next) // of an attempt that a power-off cut short
	if err := os.WriteFile(next, []byte(content), mode); err != nil {
		_ = os.Remove(next)
		return err
	}
	if err := os.Chmod(next, mode); err != nil {
		return err
	}
	return os.Rename(next, path)
}
