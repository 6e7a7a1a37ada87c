package jobs

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func imageWith(t *testing.T, passwd, group string) string {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"passwd": passwd, "group": group} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFindAccount(t *testing.T) {
	root := imageWith(t,
		"root:x:0:0:root:/root:/bin/bash\nbroken\nbad:x:no:0::/:/bin/sh\nann:x:1000:1001::/home/ann:\n1000:x:5:5::/five:/bin/sh\nbob:x:7:7:::/bin/sh",
		"adm:x:4:ann,bob\nempty:x:5:\nann:x:1001:\nsudo:x:27:bob\n")
	for spec, want := range map[string]account{
		"":      {name: "root", home: "/root", shell: "/bin/bash"},
		"root":  {name: "root", home: "/root", shell: "/bin/bash"},
		"0":     {name: "root", home: "/root", shell: "/bin/bash"},
		"ann":   {name: "ann", uid: 1000, gid: 1001, groups: []uint32{4}, home: "/home/ann", shell: "/bin/sh"},
		"7":     {name: "bob", uid: 7, gid: 7, groups: []uint32{4, 27}, home: "/", shell: "/bin/sh"},
		"1000":  {name: "1000", uid: 5, gid: 5, home: "/five", shell: "/bin/sh"},
		"7:9":   {name: "bob", uid: 7, gid: 9, groups: []uint32{4, 27}, home: "/", shell: "/bin/sh"},
		"99:98": {uid: 99, gid: 98, home: "/", shell: "/bin/sh"},

		"99:adm":   {uid: 99, gid: 4, home: "/", shell: "/bin/sh"},
		"ann:sudo": {name: "ann", uid: 1000, gid: 27, groups: []uint32{4}, home: "/home/ann", shell: "/bin/sh"},
		"root:0":   {name: "root", home: "/root", shell: "/bin/bash"},
		"99":       {uid: 99, home: "/", shell: "/bin/sh"},
	} {
		if got, err := findAccount(root, spec); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", spec, got, err)
		}
	}
	for _, spec := range []string{"eve", "bad", "-1", "99:x", "ann:x", "4294967296", ":", "root:", "eve:adm", "ann:"} {
		if got, err := findAccount(root, spec); err == nil {
			t.Errorf("%q: %+v", spec, got)
		}
	}
}

func TestRootNeedsNoDatabase(t *testing.T) {
	want := account{name: "root", home: "/root", shell: "/bin/sh"}
	if got, err := findAccount(t.TempDir(), ""); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzAccount(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\n", "adm:x:4:root\n", "root")
	f.Fuzz(func(t *testing.T, passwd, group, name string) {
		if found, ok := searchPasswd(passwd, name); ok && (found.home == "" || found.shell == "") {
			t.Errorf("%+v", found)
		}
		searchGroups(group, name)
	})
}
