package bench

import (
	"net/netip"

	"levee/internal/gen"
)

// traffic is one flood of the mix.
type traffic struct {
	name  string
	what  string
	flood gen.Flood
}

// sources are none that a rule names, and none that the kernel's own checks would drop before a
// rule at INPUT sees them. 2^28 addresses: none comes twice in a window.
var sources = []netip.Prefix{netip.MustParsePrefix("16.0.0.0/4")}

// floods is the mix, half of the packets each, that every rung drops: UDP, which levee's policy
// drops by its sixth rule, and bare SYNs to ports that the policy does not open, which it drops by
// its first. xdp-filter knows no flags or lengths, so SYNs to port 80 would not be dropped by all.
// Neither needs a look at a set: what a rule set costs here is the walk to the rule.
func floods(to netip.Addr) []traffic {
	ports := gen.PortRange(1024, 65535)
	return []traffic{
		{"udp", "UDP to ports 1024-65535 from 16.0.0.0/4, 46 bytes", gen.Flood{
			Kind: gen.UDP, Sources: sources, To: to, FromPorts: ports, Ports: ports}},
		{"syn", "bare TCP SYN to ports 1024-65535 from 16.0.0.0/4, 40 bytes", gen.Flood{
			Kind: gen.SYN, Sources: sources, To: to, FromPorts: ports, Ports: ports}},
	}
}
