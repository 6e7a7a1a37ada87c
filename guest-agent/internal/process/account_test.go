package process

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
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
	for spec, want := range map[string]Account{
		"":      {Name: "root", Home: "/root", Shell: "/bin/bash"},
		"root":  {Name: "root", Home: "/root", Shell: "/bin/bash"},
		"0":     {Name: "root", Home: "/root", Shell: "/bin/bash"},
		"ann":   {Name: "ann", UID: 1000, GID: 1001, Groups: []uint32{4}, Home: "/home/ann", Shell: "/bin/sh"},
		"7":     {Name: "bob", UID: 7, GID: 7, Groups: []uint32{4, 27}, Home: "/", Shell: "/bin/sh"},
		"1000":  {Name: "1000", UID: 5, GID: 5, Home: "/five", Shell: "/bin/sh"},
		"7:9":   {Name: "bob", UID: 7, GID: 9, Groups: []uint32{4, 27}, Home: "/", Shell: "/bin/sh"},
		"99:98": {UID: 99, GID: 98, Home: "/", Shell: "/bin/sh"},

		"99:adm":   {UID: 99, GID: 4, Home: "/", Shell: "/bin/sh"},
		"ann:sudo": {Name: "ann", UID: 1000, GID: 27, Groups: []uint32{4}, Home: "/home/ann", Shell: "/bin/sh"},
		"root:0":   {Name: "root", Home: "/root", Shell: "/bin/bash"},
		"99":       {UID: 99, Home: "/", Shell: "/bin/sh"},
	} {
		if got, err := FindAccount(root, spec); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", spec, got, err)
		}
	}
	for _, spec := range []string{"eve", "bad", "-1", "99:x", "ann:x", "4294967296", ":", "root:", "eve:adm", "ann:"} {
		if got, err := FindAccount(root, spec); err == nil {
			t.Errorf("%q: %+v", spec, got)
		}
	}
}

func TestRootNeedsNoDatabase(t *testing.T) {
	want := Account{Name: "root", Home: "/root", Shell: "/bin/sh"}
	if got, err := FindAccount(t.TempDir(), ""); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzAccount(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\n", "adm:x:4:root\n", "root")
	f.Add("\n\nab:\nb:ab\ncd", "b:ab:\n", "b")
	f.Add("a:b", "", "")
	f.Fuzz(func(t *testing.T, passwd, group, name string) {
		if found, ok := searchPasswd(passwd, name); ok && (found.Home == "" || found.Shell == "") {
			t.Errorf("%+v", found)
		}
		searchGroups(group, name)
		var want []string
		for line := range strings.Lines(passwd) {
			if strings.Contains(line, name) {
				want = append(want, line)
			}
		}
		got := slices.Collect(linesWith(passwd, name))
		if !strings.Contains(name, "\n") && !slices.Equal(got, want) {
			t.Errorf("%q with %q: %q", passwd, name, got)
		}
	})
}
