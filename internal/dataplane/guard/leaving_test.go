package guard

import (
	"errors"
	"net/netip"
	"testing"

	"levee/internal/packet"
)

// TestAPolicyThatDropsWhatASessionAnswersWasPutInForce: the guard looked at what arrives only, and
// a policy that drops what leaves cut the session off all the same.
func TestAPolicyThatDropsWhatASessionAnswersWasPutInForce(t *testing.T) {
	const pass = ""
	for _, c := range []struct{ name, policy, decider string }{
		{"default", "default pass\nout default drop\n", "the default (edge.levee:2)"},
		{"a rule", "out drop tcp from port 22 as \"ssh\"\ndefault pass\n", `"ssh" (edge.levee:1)`},
		{"other ports", "out drop tcp port 22\nout drop udp\ndefault pass\n", pass},
		{"protected", "out protect tcp from port 22\ndefault pass\nout default drop\n", pass},
		{"ARP", "out drop arp as \"arp\"\ndefault pass\n", `"arp" (edge.levee:1)`},
		{"what answers", "out pass established\ndefault pass\nout default drop\n", pass},
		{"what does not answer", "out drop not established\ndefault pass\n", pass},
		{"answers alone", "out drop tcp established as \"answers\"\ndefault pass\n",
			`"answers" (edge.levee:1)`},
		{"what is essential", "out pass tcp from port 22\ndefault pass\nout default drop\n", pass},
	} {
		s := ssh()
		s[0].Neighbour = netip.MustParseAddr("198.51.100.254")
		err := Check(parse(t, c.policy), packet.Ethernet, s, nil)
		var cut *CutError
		switch {
		case c.decider == pass && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.decider != pass && (!errors.As(err, &cut) || cut.Decider != c.decider):
			t.Errorf("%s: %v, want it dropped by %s", c.name, err, c.decider)
		}
	}
	p := parse(t, "default pass\nout default drop\n")
	want := "an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, would end: what it answers " +
		"would be dropped by the default (edge.levee:2); " +
		"let it pass (`out protect to 192.0.2.7 tcp from port 22`)"
	if err := Check(p, packet.Ethernet, ssh(), nil); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if left := Alive(p, packet.Ethernet, ssh(), nil); len(left) != 0 {
		t.Errorf("%v lives, and is answered by nobody", left)
	}
}
