package identity

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
)

func validRequest() map[string]any {
	return map[string]any{
		"machine_id": "0195a1b2-c3d4-7890-abcd-ef0123456789", "hostname": "m-1", "address": "10.1.2.3/16",
		"gateway": "10.1.0.1", "dns": []string{"10.1.0.1"}, "mac": "52:54:00:00:00:01", "mtu": 1500,
		"time_unix_ms": 1700000000000, "entropy": make([]byte, 32),
	}
}

func parse(t *testing.T, fields map[string]any) (*Request, error) {
	body, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return ParseRequest(body)
}

func TestRequest(t *testing.T) {
	request, err := parse(t, validRequest())
	if err != nil {
		t.Fatal(err)
	}
	network, err := request.network()
	if err != nil || network.address.String() != "10.1.2.3/16" {
		t.Errorf("%v, %v", network, err)
	}
	for field, values := range map[string][]any{
		"machine_id":   {nil, "", "a b"},
		"system_id":    {"a b", "\x00"},
		"hostname":     {nil, "", "a b", "-a", "a\n", string(bytes.Repeat([]byte("a"), 65))},
		"address":      {nil, "10.1.2.3", "10.1.2.3/33", "fd00::1/64", 7},
		"gateway":      {"x", "fd00::1"},
		"dns":          {[]string{"x"}, []string{"1.1.1.1\nsearch evil"}},
		"mac":          {"x", "00:11:22:33:44:55:66:77"},
		"mtu":          {-1, 10, 70000},
		"time_unix_ms": {nil, 0, -5},
		"entropy":      {nil, make([]byte, 31), "?"},
	} {
		for _, value := range values {
			fields := validRequest()
			fields[field] = value
			if _, err := parse(t, fields); err == nil {
				t.Errorf("%s %v was taken", field, value)
			}
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"machine_id":"m","hostname":"h","address":"10.1.2.3/16","time_unix_ms":1,"entropy":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if plain, ok := readPlain(body); ok {
			var want Request
			if err := json.Unmarshal(body, &want); err != nil || !reflect.DeepEqual(plain, &want) {
				t.Errorf("%s: %+v, %+v, %v", body, plain, want, err)
			}
		}
		request, err := ParseRequest(body)
		if err != nil {
			return
		}
		if len(request.Entropy) < minEntropy || request.Hostname == "" || request.MachineID == "" {
			t.Errorf("%+v", request)
		}
		if id := systemMachineID(request.SystemID); len(id) != 32 {
			t.Errorf("machine id %q", id)
		}
	})
}

func content(t *testing.T, path string) string {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(got)
}

func TestFilesFollowTheIdentity(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"/etc/hosts":                    "127.0.0.1\tlocalhost\n127.0.1.1 old\n10.0.0.9 mine # kept",
		"/etc/ssh/ssh_host_rsa_key":     "secret",
		"/etc/ssh/ssh_host_rsa_key.pub": "public",
		"/etc/ssh/sshd_config":          "kept",
		"/var/lib/systemd/random-seed":  "seed",
		"/run/resolv":                   "not to be followed",
	} {
		if err := os.MkdirAll(filepath.Dir(root+path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(root+"/run/resolv", root+"/etc/resolv.conf"); err != nil {
		t.Fatal(err)
	}
	request, err := parse(t, validRequest())
	if err != nil {
		t.Fatal(err)
	}
	if failures := writeFiles(root, request, false); len(failures) > 0 {
		t.Fatal(failures)
	}
	for path, want := range map[string]string{
		"/etc/hostname":             "m-1\n",
		"/etc/hosts":                "127.0.0.1\tlocalhost\n10.0.0.9 mine # kept\n127.0.1.1\tm-1\n",
		"/etc/machine-id":           "0195a1b2c3d47890abcdef0123456789\n",
		"/etc/resolv.conf":          "nameserver 10.1.0.1\n",
		"/run/resolv":               "not to be followed",
		"/etc/ssh/sshd_config":      "kept",
		"/var/lib/sandbar/identity": "0195a1b2-c3d4-7890-abcd-ef0123456789\n",
	} {
		if got := content(t, root+path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_rsa_key.pub", "/var/lib/systemd/random-seed"} {
		if _, err := os.Stat(root + path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

func TestSecretsOfTheSameMachineAreKept(t *testing.T) {
	root := t.TempDir()
	request, err := parse(t, validRequest())
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(root, request, false)
	key := root + "/etc/ssh/ssh_host_rsa_key"
	if err := os.MkdirAll(filepath.Dir(key), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeFiles(root, request, false)
	if got := content(t, key); got != "secret" {
		t.Errorf("%q", got)
	}
}

func TestASystemIDNamesTheFilesOfItsMachine(t *testing.T) {
	root := t.TempDir()
	fields := validRequest()
	fields["system_id"] = "11111111-2222-4333-8444-555555555555"
	request, err := parse(t, fields)
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(root, request, false)
	if got := content(t, root+machineIDPath); got != "11111111222243338444555555555555\n" {
		t.Errorf("%q", got)
	}
	key := root + "/etc/ssh/ssh_host_rsa_key"
	if err := os.MkdirAll(filepath.Dir(key), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeFiles(root, request, false)
	if got := content(t, key); got != "secret" {
		t.Errorf("a restart of the same machine: %q", got)
	}
	request.SystemID = request.MachineID
	writeFiles(root, request, true)
	if got := content(t, key); got != "secret" {
		t.Errorf("a disk without secrets of others: %q", got)
	}
	request.SystemID = "another"
	writeFiles(root, request, false)
	if _, err := os.Stat(key); !os.IsNotExist(err) {
		t.Errorf("another machine has the key: %v", err)
	}
}

func TestClaim(t *testing.T) {
	for body, isGood := range map[string]bool{
		`{"machine_id":"m","time_unix_ms":1}`:                   true,
		`{"machine_id":"m","time_unix_ms":1,"disk_bytes":1024}`: true,
		`{"machine_id":"m"}`:                                    false,
		`{"time_unix_ms":1}`:                                    false,
		`{"machine_id":"a b","time_unix_ms":1}`:                 false,
		`{"machine_id":"m","time_unix_ms":-1}`:                  false,
		`?`:                                                     false,
	} {
		if _, err := ParseClaim([]byte(body)); (err == nil) != isGood {
			t.Errorf("%s: %v", body, err)
		}
	}
	request, _ := ParseClaim([]byte(`{"machine_id":"m","time_unix_ms":1}`))
	if err := New(noSystem{}).Claim(request); err != errNoLease {
		t.Errorf("without a lease: %v", err)
	}
	if err := Assumed("other").Claim(request); err != errIdentified {
		t.Errorf("with an identity: %v", err)
	}
}

func TestHostsOfAnEmptyImage(t *testing.T) {
	want := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tm\n"
	if got := hostsWith("", "m"); got != want {
		t.Errorf("%q", got)
	}
	if got := hostsWith(want, "m"); got != want {
		t.Errorf("not the same again: %q", got)
	}
}

func TestMachineIDThatIsNoUUIDIsHashed(t *testing.T) {
	if a, b := systemMachineID("machine-1"), systemMachineID("machine-2"); len(a) != 32 || a == b {
		t.Errorf("%s, %s", a, b)
	}
}

func TestSuperblock(t *testing.T) {
	superblock := make([]byte, superblockSize)
	put := func(at int, value uint32) { binary.LittleEndian.PutUint32(superblock[at:], value) }
	if _, err := parseSuperblock(superblock); err == nil {
		t.Error("an empty block was taken")
	}
	put(fieldMagic, ext4Magic)
	put(fieldBlocksLow, 5)
	put(fieldBlocksHigh, 1)
	put(fieldLogSize, 2)
	put(fieldPerGroup, 32768)
	if got, err := parseSuperblock(superblock); err != nil || got != (geometry{4096, 5, 32768}) {
		t.Errorf("%+v, %v", got, err)
	}
	put(fieldIncompat, incompat64Bit)
	if got, err := parseSuperblock(superblock); err != nil || got.blocks != 1<<32+5 {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzSuperblock(f *testing.F) {
	f.Add(make([]byte, superblockSize))
	f.Fuzz(func(t *testing.T, superblock []byte) {
		if got, err := parseSuperblock(superblock); err == nil && (got.blockSize == 0 || got.perGroup == 0) {
			t.Errorf("%+v", got)
		}
	})
}

func TestAWarmUpChangesOnlyFilesThatWereEmptyOrMissing(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"/etc", "/var/lib/sandbar"} {
		if err := os.MkdirAll(root+folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{hostsPath: "127.0.0.1\tlocalhost\n", machineIDPath: ""} {
		if err := os.WriteFile(root+path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	request, err := parse(t, validRequest())
	if err != nil {
		t.Fatal(err)
	}
	key := root + "/etc/ssh/ssh_host_rsa_key"
	if err := os.MkdirAll(filepath.Dir(key), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the files of the second round have the values of the first
		if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		if failures := warmUpFiles(root, request, false); len(failures) > 0 {
			t.Error(failures)
		}
		if _, err := os.Stat(key); !os.IsNotExist(err) {
			t.Errorf("the secret is left: %v", err)
		}
	}
	inodes := map[string]os.FileInfo{}
	for _, file := range identityFiles {
		want := map[string]string{
			hostnamePath:  "m-1\n",
			hostsPath:     "127.0.0.1\tlocalhost\n",
			machineIDPath: "0195a1b2c3d47890abcdef0123456789\n",
			resolvPath:    "nameserver 10.1.0.1\n",
			recordPath:    "0195a1b2-c3d4-7890-abcd-ef0123456789\n",
		}[file.path]
		info, err := os.Stat(root + file.path)
		if got := content(t, root+file.path); err != nil || got != want || info.Mode().Perm() != file.mode {
			t.Errorf("%s: %q, %v, %v", file.path, got, info, err)
		}
		inodes[file.path] = info
	}
	if failures := writeFiles(root, request, false); len(failures) > 0 {
		t.Fatal(failures)
	}
	for path, before := range inodes {
		if after, err := os.Stat(root + path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s was made anew: %v", path, err)
		}
	}
}

// The request is empty, so that a WarmUp without its check could not change the computer that runs the test.
func TestOnlyAMachineWithoutIdentityWarmsUp(t *testing.T) {
	if err := Assumed("m").WarmUp(new(Request)); err != errIdentified {
		t.Errorf("%v", err)
	}
}

func TestFilesAreOverwrittenInPlaceUnlessTheyAreOdd(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "f")
	inode := func() uint64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	for _, old := range []string{"", "short", "longer than the new one"} {
		if err := os.WriteFile(path, []byte(old), 0o755); err != nil {
			t.Fatal(err)
		}
		before := inode()
		if err := setFile(path, "the new one", 0o644); err != nil {
			t.Fatal(err)
		}
		if got := content(t, path); got != "the new one" || inode() != before {
			t.Errorf("%q, inode %d was %d", got, inode(), before)
		}
	}
	target := filepath.Join(directory, "target")
	for _, link := range []func(string, string) error{os.Symlink, os.Link} {
		_ = os.Remove(path)
		if err := os.WriteFile(target, []byte("another's"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := link(target, path); err != nil {
			t.Fatal(err)
		}
		if err := setFile(path, "own", 0o644); err != nil {
			t.Fatal(err)
		}
		if content(t, path) != "own" || content(t, target) != "another's" {
			t.Errorf("%q, %q", content(t, path), content(t, target))
		}
	}
}
