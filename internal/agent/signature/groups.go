package signature

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/agent/spread"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// kind holds the fields that packets of a group have in common, coarser where they are zero.
type kind struct {
	ether      uint16
	proto      uint8
	ip         bool
	fragment   bool
	later      bool
	transport  packet.Transport
	detail     uint16 // flags of TCP, or type of ICMP
	anyDetail  bool
	everything bool
}

const flagsAside = packet.ECE | packet.CWR

// kinds of a packet, the finest first.
func kinds(p *packet.Packet) [3]kind {
	fine := kind{ether: p.EtherType, proto: p.Proto, ip: p.IsIP(), fragment: p.Fragment,
		later: p.LaterFragment, transport: p.Transport}
	coarse := fine
	coarse.anyDetail = true
	switch p.Transport {
	case packet.TCPTransport:
		fine.detail = uint16(p.Flags &^ flagsAside)
	case packet.ICMPTransport, packet.ICMP6Transport:
		fine.detail = uint16(p.Type)
	}
	return [3]kind{fine, coarse, {everything: true}}
}

// groupsOf returns the largest groups of packets of the flood that look alike; what is everything
// comes last.
func groupsOf(flood, good *view, left set) []*group {
	inFlood, inGood := map[kind][]int{}, map[kind][]int{}
	n := 0
	for at := range flood.len() {
		if left.has(at) {
			n++
			for _, k := range kinds(&flood.packets[at]) {
				inFlood[k] = append(inFlood[k], at)
			}
		}
	}
	for at := range good.len() {
		if good.packets[at].Malformed == packet.WellFormed {
			for _, k := range kinds(&good.packets[at]) {
				inGood[k] = append(inGood[k], at)
			}
		}
	}
	size := func(k kind) int { return len(inFlood[k]) }
	all := slices.SortedFunc(maps.Keys(inFlood), func(a, b kind) int {
		return cmp.Or(size(b)-size(a), compareKinds(a, b))
	})
	var out []*group
	for _, k := range all {
		few := float64(size(k)) < fewest*float64(n)
		if few || len(out) >= 5 || k.everything {
			continue
		}
		g := &group{flood: flood, good: good, inFlood: inFlood[k], inGood: inGood[k]}
		double := slices.ContainsFunc(out, func(o *group) bool {
			return len(o.inFlood) == len(g.inFlood) && o.inFlood[0] == g.inFlood[0]
		})
		if !double {
			out = append(out, g)
		}
	}
	k := kind{everything: true}
	return append(out, &group{flood: flood, good: good, inFlood: inFlood[k], inGood: inGood[k]})
}

// compareKinds orders kinds that are as frequent, so that the same samples give the same rules.
func compareKinds(a, b kind) int {
	bit := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.ether, b.ether), cmp.Compare(a.proto, b.proto),
		bit(a.anyDetail)-bit(b.anyDetail), cmp.Compare(a.detail, b.detail),
		bit(a.fragment)-bit(b.fragment), bit(a.later)-bit(b.later),
		bit(a.everything)-bit(b.everything), cmp.Compare(a.transport, b.transport),
		bit(a.ip)-bit(b.ip))
}

// suggest makes the terms of all groups.
func suggest(groups []*group) []*term {
	terms := map[string]*term{}
	for _, g := range groups {
		g.terms = terms
		var from []netip.Addr
		for _, at := range g.inFlood {
			if a := g.flood.packets[at].Src; a.IsValid() {
				from = append(from, a)
			}
		}
		g.forged = spread.Of(from).Forged
		g.collect()
	}
	// RFC 2131 section 4.1, RFC 8415 section 7.2: ports of DHCP servers and clients
	for f, text := range map[field.Field]string{field.SrcPort: "not from port { 67, 547 }",
		field.DstPort: "not port { 68, 546 }"} {
		terms[text] = &term{text: text, field: f, not: true, cost: 1, width: 1, spares: true}
	}
	return slices.SortedFunc(maps.Values(terms), func(a, b *term) int {
		return cmp.Or(cmp.Compare(a.field, b.field), strings.Compare(a.text, b.text))
	})
}
