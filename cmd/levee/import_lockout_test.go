package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"levee/internal/host/session"
	"levee/internal/packet"
)

// TestImportLooksForLockOuts: a policy that was imported on the machine itself is asked about the
// sessions that run there, and about new ones like them, before the first packet.
func TestImportLooksForLockOuts(t *testing.T) {
	for _, c := range []struct{ name, rules, want string }{
		{"nobody is cut", "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n", ""},
		{"a session", "-A INPUT -p tcp -m tcp --dport 80 -j ACCEPT\n",
			"LOCK-OUT: an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, would be dropped"},
		{"the next session", "-A INPUT -m state --state ESTABLISHED -j ACCEPT\n",
			"LOCK-OUT: a new connection such as an SSH session, from 192.0.2.7:50000 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "rules")
			text := "# iptables-save\n*filter\n:INPUT DROP [0:0]\n" + c.rules + "COMMIT\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			e, stdout, stderr, _ := testEnv(false, "import", "iptables", "--dev", "eth0", file)
			e.link = func(string) (packet.Link, error) { return packet.Ethernet, nil }
			e.sessions = func(dev string) ([]session.Session, error) {
				if dev != "eth0" {
					t.Errorf("sessions of %q were looked for", dev)
				}
				return []session.Session{{Local: netip.MustParseAddrPort("198.51.100.1:22"),
					Remote: netip.MustParseAddrPort("192.0.2.7:50000"),
					What:   "an SSH session", Again: true}}, nil
			}
			if got := run(e); got != 0 {
				t.Fatalf("status %d: %s", got, stderr)
			}
			if stdout.Len() == 0 || strings.Contains(stderr.String(),
				"LOCK-OUT") != (c.want != "") ||
				!strings.Contains(stderr.String(), c.want) {
				t.Errorf("%s", stderr)
			}
		})
	}
}
