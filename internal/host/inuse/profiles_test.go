package inuse

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"levee/profiles"
)

// TestProfilesAreProposedForWhatListens: by the process where it is known, else by the port.
func TestProfilesAreProposedForWhatListens(t *testing.T) {
	at := netip.IPv4Unspecified()
	m := &Machine{Dev: "eth0", Listeners: []Listener{
		{"udp", at, 28000, "srcds_linux"}, {"udp", at, 27015, "hlds_linux"},
		{"udp", at, 53, "unbound"}, {"udp", netip.IPv6Unspecified(), 53, "unbound"},
		{"udp", at, 51820, "kernel"}, {"tcp", at, 22, "sshd"}, {"tcp", at, 2222, "sshd"},
		{"tcp", at, 25, "master"}, {"tcp", at, 8080, "java"}, {"tcp", at, 27015, "srcds_linux"},
	}}
	want := []string{"use goldsrc port 27015", "use source-engine port 28000",
		"use wireguard port 51820", "use dns-recursive port 53", "use ssh port { 22, 2222 }",
		"use mail smtp 25"}
	if got := m.proposals(); !slices.Equal(got, want) {
		t.Errorf("proposed are %q, not %q", got, want)
	}
	draft := m.Policy()
	for _, line := range append(want, "set abused = dynamic(of names, max 100000, lease 1h, keep)",
		`drop udp port 53 dns name in abused as "abused"`) {
		if !strings.Contains(draft, "\n#   "+line+"\n") {
			t.Errorf("the draft lacks %q:\n%s", line, draft)
		}
	}
}

// TestEachProfileIsProposed: a profile that init does not know is proposed to nobody.
func TestEachProfileIsProposed(t *testing.T) {
	var known []string
	for _, k := range Services() {
		known = append(known, k.Profile)
	}
	slices.Sort(known)
	if got := profiles.Names(); !slices.Equal(known, got) {
		t.Errorf("init knows %q, and there are %q", known, got)
	}
}
