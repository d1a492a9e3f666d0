package ir

import (
	"strings"
	"testing"

	"levee/internal/lang/resolve"
)

// TestARuleOnSourcesCutDHCPSilently: rules against addresses that are not the machine's own dropped
// what it asks before it has one, and `levee check` said nothing.
func TestARuleOnSourcesCutDHCPSilently(t *testing.T) {
	const keep = "out pass udp from 0.0.0.0 from port 68 port 67\n" +
		"out pass icmp6 from { ::, fe80::/10 }\n"
	for _, c := range []struct{ text, says string }{
		{"out drop not from 192.0.2.0/24\n", "DHCP, whether its address is taken, routers"},
		{"out drop not from self\n", "DHCP, whether its address is taken, routers"},
		{"out drop ipv4 not from 192.0.2.0/24\n", "DHCP"},
		{"out drop ipv6 not from { 2001:db8::/32, fe80::/10 }\n", "whether its address is taken"},
		{keep + "out drop not from 192.0.2.0/24\n", ""},
		{"out drop udp port 67\nout drop icmp6\nout drop tcp from 192.0.2.1\n", ""},
		{"essential off\nout drop not from 192.0.2.0/24\n", ""},
	} {
		p, ds := resolve.Parse("a.levee", []byte(c.text+"default pass\n"), nil)
		if ds.HasErrors() {
			t.Fatal(ds.Err())
		}
		said := ""
		for _, f := range Build(p).Findings {
			if _, what, ok := strings.Cut(f.Message, "before it has an address: "); ok {
				said = what
			}
		}
		if said != c.says {
			t.Errorf("%q: said %q, want %q", c.text, said, c.says)
		}
	}
}
