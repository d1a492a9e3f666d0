package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFiguresOfADirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.save": "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT -i enp1s0 " +
			"-p tcp --dport 22 -j ACCEPT\n-A INPUT -i eth9 -j ACCEPT\n" +
			"-A INPUT -p udp -m u32 --u32 \"0=1\" -j DROP\n" +
			"-A OUTPUT -p udp -m mark --mark 1 -j ACCEPT\n-A OUTPUT -p udp -j DROP\n" +
			"COMMIT\n",
		"b.save": "no rules\n",
		"c.conf": "block in on vio0 proto udp\npass out\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := run(dir, &out); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| a.save | 1 | 2 | 1 | 0 | 0 | 1 | 2 | 0 |", "| b.save | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 0 |",
		"| c.conf | 1 | 1 | 1 | 0 | 0 | 0 | 1 | 0 |", "| all | 3 | 3 | 2 | 0 | 1 | 1 | 3 | 0 |",
	} {
		if !strings.Contains(out.String(), row+"\n") {
			t.Errorf("no row %q in\n%s", row, out.String())
		}
	}
}
