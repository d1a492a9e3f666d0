package guard

import (
	"net/netip"
	"testing"

	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// TestASessionThatIsOverKeepsNothingFromBeingInForce: attackers whose addresses are in a set held
// connections for as long as the kernel waited for them, and vetoed each policy and live rule.
func TestASessionThatIsOverKeepsNothingFromBeingInForce(t *testing.T) {
	attackers := Entries{"abusers": {{Prefix: netip.MustParsePrefix("192.0.2.7/32")}}}
	const set = "set abusers = dynamic(max 10)\n"
	for _, c := range []struct {
		name, policy string
		entries      Entries
		alive        int
	}{
		{"shut out", set + "drop from abusers\ndefault pass\n", attackers, 0},
		{"another is", set + "drop from abusers\ndefault pass\n", nil, 1},
		{"protected", set + "protect from 192.0.2.7\ndrop from abusers\ndefault pass\n", attackers,
			1},
		{"the default", "default drop\n", nil, 0},
		{"established", "pass established\ndefault drop\n", nil, 1},
		{"odd packets of it", "drop tcp port 22 len > 1000\ndrop ttl < 40\ndefault pass\n", nil, 1},
		{"a new one", "drop tcp syn port 22\ndefault pass\n", nil, 1},
	} {
		got := Alive(parse(t, c.policy), packet.Ethernet, ssh(), c.entries)
		if len(got) != c.alive {
			t.Errorf("%s: %d alive, want %d", c.name, len(got), c.alive)
		}
	}
	if got := Alive(&policy.Policy{}, packet.Ethernet, ssh(1, 2, 3), nil); len(got) != 1 {
		t.Error("a session with three tags is not left to Check")
	}
}
