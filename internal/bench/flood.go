package bench

import (
	"fmt"
	"net/netip"
	"slices"

	"levee/internal/lab"
	"levee/internal/lab/gen"
)

// Families of a report.
const (
	IPv4 = "ipv4"
	IPv6 = "ipv6"
)

// traffic is one flood of the mix.
type traffic struct {
	name   string
	family string // empty where traces are measured, which may have both
	what   string
	flood  gen.Flood
	frames *gen.Frames // instead of flood
	lets   float64     // share of the packets that are to pass, and reach the application
}

// floodPort is where the UDP flood goes, and the application listens.
const floodPort = 4000

// payload is what a UDP datagram carries, in bytes: with IPv4 it fills the shortest Ethernet frame.
const payload = 18

// Sources: sources are none that a rule names, and none that the kernel's own checks would drop before a
// rule at INPUT sees them. With 2^28 addresses and more, none comes twice in a window. Bogons are
// among those that the policy names, and such that the kernel itself lets pass up to INPUT.
var (
	sources = map[string][]netip.Prefix{
		IPv4: {netip.MustParsePrefix("16.0.0.0/4")},
		IPv6: {netip.MustParsePrefix("2001:db8:8000::/33")},
	}
	bogons = map[string][]netip.Prefix{
		IPv4: {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12")},
		IPv6: {netip.MustParsePrefix("fd00::/8")},
	}
)

// TrafficNames are the floods that a ladder can be measured with.
var TrafficNames = []string{"udp", "syn", "bogon", "ack"}

// floods are the named floods of a family, to a device of a lab.
func floods(names []string, family string, d *lab.Device) []traffic {
	to, header, ip := d.IPv4.Addr(), 20, "IPv4"
	if family == IPv6 {
		to, header, ip = d.IPv6.Addr(), 40, "IPv6"
	}
	wide := gen.PortRange(1024, 65535)
	all := map[string]traffic{
		"udp": {what: fmt.Sprintf("UDP to port %d", floodPort), flood: gen.Flood{
			Kind: gen.UDP, Sources: sources[family], Ports: []uint16{floodPort}, Lengths: []int{header + 8 + payload}}},
		"syn": {what: "bare TCP SYN to ports 1024-65535", flood: gen.Flood{
			Kind: gen.SYN, Sources: sources[family], Ports: wide, Lengths: []int{header + 20}}},
		"bogon": {what: "ACK to ports 1024-65535", flood: gen.Flood{
			Kind: gen.ACK, Sources: bogons[family], Ports: wide, Lengths: []int{header + 20}}},
		"ack": {what: "ACK to ports 1024-65535", flood: gen.Flood{
			Kind: gen.ACK, Sources: sources[family], Ports: wide, Lengths: []int{header + 20}}},
	}
	var out []traffic
	for _, name := range TrafficNames {
		if !slices.Contains(names, name) {
			continue
		}
		t := all[name]
		t.name, t.family, t.flood.To, t.flood.FromPorts = name, family, to, wide
		t.what = fmt.Sprintf("%s, from %s, %s of %d bytes", t.what, join(t.flood.Sources), ip, t.flood.Lengths[0])
		out = append(out, t)
	}
	return out
}

func join(prefixes []netip.Prefix) string {
	s := ""
	for i, p := range prefixes {
		if i > 0 {
			s += " and "
		}
		s += p.String()
	}
	return s
}
