package account

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
