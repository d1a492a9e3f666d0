package bench

import (
	"net/netip"

	"levee/internal/gen"
)

// traffic is one flood of the mix.
type traffic struct {
	name   string
	what   string
	flood  gen.Flood
	frames *gen.Frames // instead of flood
}

// sources are none that a rule names, and none that the kernel's own checks would drop before a
// rule at INPUT sees them. 2^28 addresses: none comes twice in a window.
var sources = []netip.Prefix{netip.MustParsePrefix("16.0.0.0/4")}

// bogons are among those that the policy names, and such that the kernel itself lets pass up to INPUT.
var bogons = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12")}

// floods is the mix.
func floods(to netip.Addr) []traffic {
	ports := gen.PortRange(1024, 65535)
	return []traffic{
		{name: "udp", what: "UDP to ports 1024-65535 from 16.0.0.0/4, 46 bytes", flood: gen.Flood{
			Kind: gen.UDP, Sources: sources, To: to, FromPorts: ports, Ports: ports}},
		{name: "syn", what: "bare TCP SYN to ports 1024-65535 from 16.0.0.0/4, 40 bytes", flood: gen.Flood{
			Kind: gen.SYN, Sources: sources, To: to, FromPorts: ports, Ports: ports}},
		{name: "bogon", what: "ACK to ports 1024-65535 from 10.0.0.0/8 and 172.16.0.0/12, 40 bytes", flood: gen.Flood{
			Kind: gen.ACK, Sources: bogons, To: to, FromPorts: ports, Ports: ports}},
		{name: "ack", what: "ACK to ports 1024-65535 from 16.0.0.0/4, 40 bytes", flood: gen.Flood{
			Kind: gen.ACK, Sources: sources, To: to, FromPorts: ports, Ports: ports}},
	}
}
