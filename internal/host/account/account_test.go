package account

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	webID = "3f2a0123456789ab3f2a0123456789ab3f2a0123456789ab3f2a0123456789ab"
	dbID  = "77770123456789ab3f2a0123456789ab3f2a0123456789ab3f2a0123456789ab"
)

// put writes a file below root.
func put(t *testing.T, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestAContainerThatWasRenamedKeptItsName: a name is of the container that has it now, of either
// engine, and of nobody else's.
func TestAContainerThatWasRenamedKeptItsName(t *testing.T) {
	root := t.TempDir()
	config := "var/lib/docker/containers/" + webID + "/config.v2.json"
	put(t, root, config, `{"ID": "`+webID+`", "Name": "/web", "State": {"Pid": 9}}`)
	put(t, root, "var/lib/containers/storage/overlay-containers/containers.json",
		`[{"id": "`+dbID+`", "names": ["db", "my.db"]}, {"id": "x/../y", "names": ["evil"]}]`)
	before := Stamp(root)
	all, err := Containers(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"web":   {"docker-" + webID + ".scope", webID},
		"db":    {"libpod-" + dbID + ".scope", "libpod-" + dbID},
		"my.db": {"libpod-" + dbID + ".scope", "libpod-" + dbID},
		"evil":  {"machine-evil.scope", "systemd-nspawn@evil.service", "lxc.payload.evil"},
		"a-b":   {`machine-a\x2db.scope`, `systemd-nspawn@a\x2db.service`, "lxc.payload.a-b"},
	} {
		if got := Cgroups(name, all); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	put(t, root, config, `{"ID": "`+webID+`", "Name": "/web-old", "State": {"Pid": 9}}`)
	if Stamp(root) == before {
		t.Error("nobody would look again after a rename")
	}
	if all, err = Containers(root); err != nil || all["web"] != nil || all["web-old"] == nil {
		t.Errorf("after a rename: %v, %v", all, err)
	}
}

// TestContainersOfAnotherDirectoryWereNobodys: Docker has another directory with userns-remap, and
// either engine where its configuration says so. Of containers of one name the one that was
// started last is meant: those of a directory that is not used any more stay there.
func TestContainersOfAnotherDirectoryWereNobodys(t *testing.T) {
	id := func(digit string) string { return strings.Repeat(digit, 64) }
	root := t.TempDir()
	docker := func(dir, id, name string, at int64) {
		t.Helper()
		path := filepath.Join(dir, "containers", id, "config.v2.json")
		put(t, root, path, `{"ID": "`+id+`", "Name": "/`+name+`"}`)
		when := time.Unix(at, 0)
		if err := os.Chtimes(filepath.Join(root, path), when, when); err != nil {
			t.Fatal(err)
		}
	}
	docker("var/lib/docker", id("1"), "web", 1)
	docker("var/lib/docker/100000.100000", id("2"), "web", 3)
	docker("srv/[disk]/docker", id("3"), "web", 2)
	docker("srv/other", id("4"), "web", 4)
	put(t, root, "srv/pods/vfs-containers/containers.json",
		`[{"id": "`+id("5")+`", "names": ["db"]}]`)
	before := Stamp(root)
	put(t, root, "etc/docker/daemon.json", `{"data-root": "/srv/[disk]/docker"}`)
	put(t, root, "etc/containers/storage.conf",
		"[storage]\n# graphroot = \"/srv/none\"\n  graphroot = \"/srv/pods\"\n")
	if Stamp(root) == before {
		t.Error("nobody would look again where the configuration has changed")
	}
	all, err := Containers(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"docker-" + id("2") + ".scope", id("2"), "docker-" + id("3") + ".scope",
		id("3"), "docker-" + id("1") + ".scope", id("1")}
	if got := all["web"]; !slices.Equal(got, want) {
		t.Errorf("web: %q, want %q", got, want)
	}
	if got := all["db"]; !slices.Equal(got, []string{"libpod-" + id("5") + ".scope",
		"libpod-" + id("5")}) {
		t.Errorf("db: %q", got)
	}
}

// TestDamagedFilesOfEnginesAreErrors, which say where they are; what others say stays.
func TestDamagedFilesOfEnginesAreErrors(t *testing.T) {
	root := t.TempDir()
	put(t, root, "var/lib/docker/containers/a/config.v2.json", `{"ID": `)
	put(t, root, "var/lib/docker/containers/b/config.v2.json",
		`{"ID": "`+webID+`", "Name": "/web"}`)
	all, err := Containers(root)
	if err == nil || !strings.Contains(err.Error(), "containers/a/config.v2.json") {
		t.Errorf("a damaged file: %v", err)
	}
	if all["web"] == nil {
		t.Error("the other container is not known")
	}
}

// TestNamesOfUsersAndGroups are those of the files of this machine.
func TestNamesOfUsersAndGroups(t *testing.T) {
	if id, err := User("root"); id != 0 || err != nil {
		t.Errorf("root: %d, %v", id, err)
	}
	if _, err := User("levee-no-one"); !errors.Is(err, ErrUnknown) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := Group("levee-no-one"); !errors.Is(err, ErrUnknown) {
		t.Errorf("no group: %v", err)
	}
}

// TestAUserMayHaveSeveralNames, such as root and toor.
func TestAUserMayHaveSeveralNames(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "passwd")
	put(t, root, "passwd", "root:x:0:0:root:/root:/bin/sh\n# a line\nweb:x:33:33::/:/bin/sh\n"+
		"toor:x:0:0::/root:/bin/sh\nodd:x::0::/:/bin/sh\n")
	for uid, want := range map[uint32][]string{0: {"root", "toor"}, 33: {"web"}, 7: nil} {
		if got, err := namesIn(path, uid); err != nil || !slices.Equal(got, want) {
			t.Errorf("uid %d: %q, %v", uid, got, err)
		}
	}
	if got, err := namesIn(filepath.Join(root, "none"), 0); err != nil || got != nil {
		t.Errorf("without a file: %q, %v", got, err)
	}
}
