package account

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestUnitsByTheirAliases: a cgroup has the unit's own name, so that a rule that asks for an alias,
// or for a unit that there is not, holds for nothing.
func TestUnitsByTheirAliases(t *testing.T) {
	root := t.TempDir()
	file := func(path, to string) {
		path = filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && to == "" {
			err = os.WriteFile(path, []byte("[Service]\n"), 0o644)
		} else if err == nil {
			err = os.Symlink(to, path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file("usr/lib/systemd/system/ssh.service", "")
	file("usr/lib/systemd/system/cron.service", "")
	file("usr/lib/systemd/system/getty@.service", "")
	file("usr/lib/systemd/system/autovt@.service", "getty@.service")
	file("etc/systemd/system/sshd.service", "/usr/lib/systemd/system/ssh.service")
	file("etc/systemd/system/cron.service", "/dev/null")
	file("etc/systemd/system/own.service", "/opt/own/own.service")
	file("run/systemd/transient/run-1.service", "")
	for name, want := range map[string]string{"ssh.service": "ssh.service",
		"sshd.service": "ssh.service", "own.service": "own.service", "cron.service": "",
		"getty@tty1.service": "getty@tty1.service", "autovt@tty1.service": "getty@tty1.service",
		"nginx.service": "", "ssh.socket": "", "session-1.scope": "session-1.scope",
		"run-1.service": "run-1.service"} {
		got, err := Unit(root, name)
		if got != want || errors.Is(err, ErrUnknown) != (want == "") ||
			err != nil && want != "" {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	file("var/lib/lxc/old/config", "")
	engines := map[string][]string{"web": {"docker-1.scope"}}
	for name, want := range map[string]bool{"web": true, "old": true, "db": false} {
		if got := HasContainer(root, name, engines); got != want {
			t.Errorf("container %s: %v", name, got)
		}
	}
}
