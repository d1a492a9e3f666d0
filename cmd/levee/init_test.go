package main

import (
	"net/netip"
	"strings"
	"testing"

	"levee/internal/dataplane/judge/judgetest"
	"levee/internal/host/inuse"
	"levee/internal/host/nat"
	"levee/internal/lang/resolve"
)

// TestDraftsPassTheirOwnTests whatever was found, and warn of nothing.
func TestDraftsPassTheirOwnTests(t *testing.T) {
	any4 := netip.IPv4Unspecified()
	busy := inuse.Machine{
		Dev: "eth0",
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.9"),
			netip.MustParseAddr("2001:db8::9")},
		Listeners: []inuse.Listener{
			{Proto: "tcp", Address: any4, Port: 22, Owner: "sshd"},
			{Proto: "udp", Address: any4, Port: 123},
			{Proto: "udp", Address: netip.MustParseAddr("192.0.2.9"), Port: 123},
			{Proto: "udp", Address: netip.MustParseAddr("224.0.0.251"), Port: 5353,
				Owner: "avahi\"\n"},
			{Proto: "tcp", Address: netip.MustParseAddr("192.0.2.9"), Port: 8080,
				Owner: "a process of a name that is far too long for a label of a rule"}},
		SSH: []netip.Addr{netip.MustParseAddr("203.0.113.7")}, SSHPorts: []uint16{22, 2222},
		Resolvers: []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("fe80::1")},
		DHCP:      []string{"/run/lease"}, WireGuard: []string{"wg0"},
		Ephemeral: [2]uint16{32768, 60999},
	}
	router := busy
	router.Forwards, router.Behind = true, []string{"docker0"}
	router.NAT = nat.Rules{Forwards: []nat.Forward{
		{Proto: 6, Ports: nat.Range{Low: 8080, High: 8080}, Rule: "-A DOCKER\n"},
		{Proto: 17, Ports: nat.Range{High: 7}, From: netip.MustParsePrefix("203.0.113.0/24")},
		{Ports: nat.Range{Low: 53, High: 53}}, {}, {Proto: 47}, {Proto: 1},
		{To: netip.MustParsePrefix("192.0.2.9/32"), Rule: strings.Repeat("long ", 50)},
		{To: netip.MustParsePrefix("10.96.0.1/32"), Proto: 6},
	}}
	unread := router
	unread.NAT.Unread = []string{"nft: no\nrights"}
	for name, m := range map[string]inuse.Machine{
		"busy": busy, "router": router, "unread": unread,
		"idle": {Dev: "eth0", Ephemeral: [2]uint16{1024, 65535}},
	} {
		p, ds := resolve.Parse("draft.levee", []byte(m.Policy()), nil)
		if len(ds) > 0 {
			t.Fatalf("%s: %v\n%s", name, ds, m.Policy())
		}
		results, err := judgetest.Run(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if !r.Passed() {
				t.Errorf("%s: %+v\n%s", name, r, m.Policy())
			}
		}
	}
}
