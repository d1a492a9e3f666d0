package guard

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"levee/internal/host/session"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, ds := policy.Parse("edge.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	return p
}

// ssh is a session from 192.0.2.7 to port 22.
func ssh(tags ...uint16) []session.Session {
	return []session.Session{{
		Local: netip.MustParseAddrPort("198.51.100.1:22"), Remote: netip.MustParseAddrPort("192.0.2.7:50000"),
		What: "an SSH session", Tags: tags,
	}}
}

func TestAPolicyThatDropsASessionIsRefused(t *testing.T) {
	const pass = ""
	for _, c := range []struct{ name, policy, decider string }{
		{"default", "default drop\n", "the default (edge.levee:1)"},
		{"a rule", "drop tcp port 22 as \"ssh\"\ndefault pass\n", `"ssh" (edge.levee:1)`},
		{"full segments", "drop tcp len > 1000 as \"long\"\ndefault pass\n", `"long" (edge.levee:1)`},
		{"protected", "protect tcp from 192.0.2.0/24\ndefault drop\n", pass},
		{"let pass", "pass tcp port 22\ndefault drop\n", pass},
		{"new connections only", "drop tcp syn port 22\ndefault pass\n", pass},
	} {
		err := Check(parse(t, c.policy), packet.Ethernet, ssh())
		var cut *CutError
		switch {
		case c.decider == pass && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.decider != pass && (!errors.As(err, &cut) || cut.Decider != c.decider):
			t.Errorf("%s: %v, want it dropped by %s", c.name, err, c.decider)
		}
	}
	err := Check(parse(t, "default drop\n"), packet.Ethernet, ssh())
	want := "an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, would be dropped by the default (edge.levee:1); " +
		"let it pass (`protect from 192.0.2.7 tcp port 22`)"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := Check(parse(t, "default drop\n"), packet.Ethernet, nil); err != nil {
		t.Errorf("without a session: %v", err)
	}
}

// TestASessionArrivesWithItsTags: packets of a session on a VLAN carry its ids on the interface below.
func TestASessionArrivesWithItsTags(t *testing.T) {
	for _, c := range []struct {
		policy string
		tags   []uint16
		cut    bool
	}{
		{"drop vlan 7\ndefault pass\n", nil, false},
		{"drop vlan 7\ndefault pass\n", []uint16{7}, true},
		{"drop vlan 7\ndefault pass\n", []uint16{8}, false},
		{"drop inner-vlan 9\ndefault pass\n", []uint16{7, 9}, true},
		{"drop untagged\ndefault pass\n", []uint16{7}, false},
		{"drop untagged\ndefault pass\n", nil, true},
	} {
		if err := Check(parse(t, c.policy), packet.Ethernet, ssh(c.tags...)); (err != nil) != c.cut {
			t.Errorf("%q, tags %v: %v", c.policy, c.tags, err)
		}
	}
}

// TestFallbacksThatCutAreNotUsed: if one of the two would cut a session, neither is used.
func TestFallbacksThatCutAreNotUsed(t *testing.T) {
	set := "set friends = dynamic(max 10)\n"
	for _, c := range []struct {
		policy string
		want   int
		cut    bool
	}{
		{"default drop\n", 0, false},
		{"on error pass\ndefault drop\n", 2, false},
		{"on error drop\ndefault pass\n", 0, true},
		{"on error drop\nprotect from 192.0.2.7\ndefault pass\n", 2, false},
		{"on error drop\n" + set + "protect from friends\ndefault pass\n", 0, true},
	} {
		all, err := Fallbacks(parse(t, c.policy), packet.Ethernet, ssh())
		if len(all) != c.want || (err != nil) != c.cut {
			t.Errorf("%q: %d policies, %v", c.policy, len(all), err)
		}
		if err != nil && !strings.Contains(err.Error(), "would be dropped") {
			t.Errorf("%q: %v", c.policy, err)
		}
	}
}

// Where packets begin with IP, the guard tries the policy with such packets.
func TestASessionArrivesWithoutEthernet(t *testing.T) {
	for text, cut := range map[string]bool{
		"drop tcp port 22\ndefault pass\n":                   true,
		"protect from 192.0.2.7 tcp port 22\ndefault drop\n": false,
	} {
		if err := Check(parse(t, text), packet.L3, ssh()); (err != nil) != cut {
			t.Errorf("%q: %v", text, err)
		}
	}
}
