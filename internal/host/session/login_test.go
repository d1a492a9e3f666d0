package session

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestOnlyWhoHasProvenHimselfIsLoggedIn: a connection to an SSH server keeps nobody out of a set.
func TestOnlyWhoHasProvenHimselfIsLoggedIn(t *testing.T) {
	proc := t.TempDir()
	for i, c := range []struct {
		comm, cmdline, children string
		want                    bool
	}{
		{"sshd", "sshd: root@pts/0\x00\x00\x00", "", true},
		{"sshd", "sshd: bob@notty\x00", "", true},
		{"sshd", "sshd: bob\x00\x00", "", true}, // ssh -N
		{"sshd-session", "sshd-session: bob@EXAMPLE.ORG@pts/1\x00", "", true},
		{"sshd", "sshd: bob [priv]\x00\x00", "", false},
		{"sshd", "sshd: root [net]\x00", "", false},
		{"sshd", "sshd: unknown [net]\x00", "", false},
		{"sshd", "sshd: [accepted]\x00", "", false},
		{"sshd", "sshd: /usr/sbin/sshd -D [listener] 1 of 10-100 startups\x00", "", false},
		{"sshd", "/usr/sbin/sshd\x00-D\x00-R\x00", "", false},
		{"sshd-session", "sshd-session: bob [priv]\x00", "", false},
		{"sshd-auth", "sshd-auth: bob [net]\x00", "", false},
		{"dropbear", "/usr/sbin/dropbear\x00-F\x00", "", false},
		{"dropbear", "/usr/sbin/dropbear\x00-F\x00", "4711 ", true},
		{"nginx", "nginx: worker process\x00", "", false},
	} {
		pid := fmt.Sprint(i + 1)
		dir := filepath.Join(proc, pid)
		task := filepath.Join(dir, "task", pid)
		if err := os.MkdirAll(task, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{dir + "/comm": c.comm + "\n",
			dir + "/cmdline": c.cmdline, task + "/children": c.children} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := loggedIn(proc, pid); got != c.want {
			t.Errorf("%s %q: %v", c.comm, c.cmdline, got)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"1":  "UID=0\nUSER=root\nREMOTE=1\nREMOTE_HOST=203.0.113.9\nSTATE=active\n",
		"2":  "UID=0\nREMOTE=1\nREMOTE_HOST=\"2001:db8::9\"\nSTATE=online\n",
		"3":  "UID=0\nREMOTE=1\nREMOTE_HOST=203.0.113.10\nSTATE=closing\n",
		"4":  "UID=0\nREMOTE=0\nSTATE=active\n",
		"5":  "UID=0\nREMOTE=1\nREMOTE_HOST=host.example.net\nSTATE=active\n",
		"c1": "\x00\xff=",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(loginAddresses(dir)); got != "[203.0.113.9 2001:db8::9]" {
		t.Error(got)
	}
	if got := loginAddresses(dir + "/none"); got != nil {
		t.Error(got)
	}
}
