package flood

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/bench"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
)

// Families of a report.
const (
	IPv4 = "ipv4"
	IPv6 = "ipv6"
)

// Traffic is one flood. Rungs that are compared have all of them, in turn.
type Traffic struct {
	Name string `json:"name"`
	// empty where traces are measured, which may have both
	Family string      `json:"family,omitempty"`
	What   string      `json:"what"`
	Flood  gen.Flood   `json:"-"`
	Frames *gen.Frames `json:"-"` // instead of Flood: sent in turn
	Rate   float64     `json:"-"` // packets a second, 0 for as fast as it goes
	// share of the packets that are to pass, and reach the application
	Passes float64 `json:"-"`
}

// Port is the UDP flood's, at which the application listens.
const Port = 4000

// payload is the length of a UDP datagram's data, in bytes: with IPv4 it fills the shortest
// Ethernet frame.
const payload = 18

// Sources: sources are none that a rule names, and none that the kernel's own checks would drop
// before a rule at INPUT sees them. With 2^28 addresses and more, none comes twice in a window.
// Bogons are among those that the policy names, and such that the kernel itself lets pass up to
// INPUT.
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

// Sources returns the prefixes of flood sources of a family, without bogons.
func Sources(family string) []netip.Prefix { return sources[family] }

// TrafficNames are the floods for ladders.
var TrafficNames = []string{"udp", "syn", "bogon", "ack"}

// Floods returns the named floods of a family, to a device of a lab.
func Floods(names []string, family string, d *lab.Device) []Traffic {
	to, header, ip := d.IPv4.Addr(), 20, "IPv4"
	if family == IPv6 {
		to, header, ip = d.IPv6.Addr(), 40, "IPv6"
	}
	wide := gen.PortRange(1024, 65535)
	all := map[string]Traffic{
		"udp": {What: fmt.Sprintf("UDP to port %d", Port), Flood: gen.Flood{
			Kind: gen.UDP, Sources: sources[family], Ports: []uint16{Port},
			Lengths: []int{header + 8 + payload}}},
		"syn": {What: "bare TCP SYN to ports 1024-65535", Flood: gen.Flood{
			Kind: gen.SYN, Sources: sources[family], Ports: wide, Lengths: []int{header + 20}}},
		"bogon": {What: "ACK to ports 1024-65535", Flood: gen.Flood{
			Kind: gen.ACK, Sources: bogons[family], Ports: wide, Lengths: []int{header + 20}}},
		"ack": {What: "ACK to ports 1024-65535", Flood: gen.Flood{
			Kind: gen.ACK, Sources: sources[family], Ports: wide, Lengths: []int{header + 20}}},
	}
	var out []Traffic
	for _, name := range TrafficNames {
		if !slices.Contains(names, name) {
			continue
		}
		t := all[name]
		t.Name, t.Family, t.Flood.To, t.Flood.FromPorts = name, family, to, wide
		from := strings.Join(bench.Names(t.Flood.Sources, netip.Prefix.String), " and ")
		t.What = fmt.Sprintf("%s, from %s, %s of %d bytes", t.What, from, ip, t.Flood.Lengths[0])
		out = append(out, t)
	}
	return out
}

// Bounds of the rate of a flood, in packets a second.
const (
	MinRate = 1000
	MaxRate = 20_000_000
)

// SaneRate tells whether a flood may have a rate.
func SaneRate(pps float64) bool { return pps >= MinRate && pps <= MaxRate }

// Rate returns a number of packets a second for a person.
func Rate(pps float64) string {
	switch {
	case pps >= 1e6:
		return fmt.Sprintf("%gM", pps/1e6)
	case pps >= 1e3:
		return fmt.Sprintf("%gk", pps/1e3)
	}
	return fmt.Sprint(pps)
}

// OneRule is levee with a policy that drops the UDP flood by one rule, as the rungs of other tools
// do.
func OneRule() contender.Defence {
	return contender.Levee("one-rule",
		fmt.Appendf(nil, "drop udp port %d as \"flood\"\ndefault pass\n", Port))
}
