package wrap

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	oneID   = "b2cb3547d91e3b1e70450d454bd0fc0e7ebfe946fe5df9eb3e35cd1a10bd5bb2"
	otherID = "50f0b7b5caab5d9f495c2b2fff2331eb45ab3e17f6659fe0aef52a756bf10f01"
)

// inspected returns a script that prints a container as engines do: Docker has a slash before
// names.
func inspected(id, name string, pid int) string {
	return fmt.Sprintf(`echo '[{"Id": "%s", "Name": "%s", "State": {"Pid": %d}, "Image": "x"}]'`,
		id, name, pid)
}

// TestAContainerIsFoundByItsEngine: podman and Docker tell the first process of one that runs. Of
// one that the first engine has and that does not run, the second was not asked.
func TestAContainerIsFoundByItsEngine(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, script := range map[string]string{
		"lv-none":   "echo no such container >&2; exit 125",
		"lv-runs":   inspected(oneID, "/web", 4711),
		"lv-alias":  inspected(oneID, "web", 4711), // podman by the name of docker
		"lv-other":  inspected(otherID, "web", 4712),
		"lv-ended":  inspected(otherID, "web", 0),
		"lv-prints": "echo 4711",
		"lv-evil":   inspected(oneID, "/../web", 4711),
	} {
		text := []byte("#!/bin/sh\n" + script)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		engines string
		pid     int
		says    string
	}{
		{"lv-absent lv-none lv-runs", 4711, ""},
		{"lv-ended lv-runs", 4711, ""},
		{"lv-runs lv-alias", 4711, ""},
		{"lv-runs lv-other", 0, "by its number, b2cb3547d91e or 50f0b7b5caab"},
		{"lv-none", 0, "lv-none: no such container"},
		{"lv-ended", 0, "does not run"},
		{"lv-prints", 0, "does not tell"},
		{"lv-evil", 0, "a name that none has"},
		{"lv-absent", 0, "neither lv-absent"},
	} {
		c, err := findContainer(t.Context(), "b2cb3547d91e", strings.Fields(tt.engines))
		switch {
		case (err == nil) != (tt.says == "") ||
			err != nil && !strings.Contains(err.Error(), tt.says):
			t.Errorf("%s: %v, want %q", tt.engines, err, tt.says)
		case err == nil && (c.State.Pid != tt.pid || c.Name != "web"):
			t.Errorf("%s: %+v, want web with process %d", tt.engines, c, tt.pid)
		}
	}
}

// TestAContainerWithoutACgroupGaveItsPolicyToOthers: a container that was started with
// --cgroups=disabled is in the session of who started it, and the policy was put there. One whose
// first process is systemd has that in a cgroup below its own, which had the policy alone.
func TestAContainerWithoutACgroupGaveItsPolicyToOthers(t *testing.T) {
	c := &container{ID: oneID, Name: "web"}
	for in, want := range map[string]string{
		"/docker/" + oneID:                         "/docker/" + oneID,
		"/system.slice/docker-" + oneID + ".scope": "/system.slice/docker-" + oneID + ".scope",
		"/machine.slice/libpod-" + oneID + ".scope/container/init.scope": "/machine.slice/libpod-" +
			oneID + ".scope",
		"/a.service/libpod-payload-" + oneID:       "/a.service/libpod-payload-" + oneID,
		"/docker/" + oneID + "/evil-" + oneID:      "/docker/" + oneID,
		"/docker/" + oneID + "/docker/" + otherID:  "/docker/" + oneID,
		"/user.slice/user-0.slice/session-1.scope": "",
		"/docker/" + otherID:                       "",
		"/":                                        "",
	} {
		got, err := c.cgroup(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("in %s: %q, %v; want %q", in, got, err, want)
		}
	}
	if got, err := (&container{Name: "web"}).cgroup("/docker/" + oneID); err == nil {
		t.Errorf("without a number it is %q", got)
	}
}
