package difftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// kind is a kind of term. A match has each at most once with each sign.
type kind int

const (
	kFrom kind = iota
	kTo
	kFromPort
	kPort
	kFromService
	kToService
	kFromEndpoint
	kToEndpoint
	kProto
	kFamily
	kICMP
	kFlags
	kLen
	kTTL
	kDSCP
	kVLAN
	kInner
	kUntagged
	kEther
	kEtherFrom
	kEtherTo
	kFragments
	kProven
	numKinds
)

// moreNumbers are the numeric fields that no kind above is about: kinds from numKinds on, with
// their words and values from the table of fields.
var moreNumbers = func() (more []*field.Phrase) {
	drawn := []field.Field{field.SrcPort, field.DstPort, field.Proto, field.EtherType, field.Len,
		field.TTL, field.DSCP, field.VLAN, field.InnerVLAN}
	for i := range field.Phrases {
		if ph := &field.Phrases[i]; isMessage(ph) || ph.Form == field.FormSuffix ||
			ph.Form == field.FormBytes || ph.Form == field.FormPattern ||
			ph.Form == field.FormInner ||
			ph.Form == field.FormNumber && !slices.Contains(drawn, ph.Field) &&
				ph.Field.Info().Kernel == field.NoSide { // see TestWhatLeavesIsAsTheOracleSays
			more = append(more, ph)
		}
	}
	return more
}()

// bytes returns an offset and what stands there in many packets, or nearly.
func (g *generator) bytes() string {
	b := policy.Bytes{At: g.r.IntN(12), Value: make([]byte, 1+g.r.IntN(policy.MaxBytes))}
	b.Mask = bytes.Repeat([]byte{0xff}, len(b.Value))
	if g.chance(3) {
		b.Mask[g.r.IntN(len(b.Mask))] = 0xf0
	}
	if g.chance(2) {
		at := g.r.IntN(len(b.Value))
		b.Value[at] = byte(1+g.r.IntN(3)) << 4 & b.Mask[at]
	}
	return b.String()
}

// find returns what a payload may contain, of a few in a policy.
func (g *generator) find() string {
	all := []string{`"ab"`, "0000", "010203", `/^[\x00-\x0f]/`, `/\x00[^\x00]+\x00$/`,
		`{ "a", /b.?c/, ff } any case`, `/[\x00-\x7f]{5}/`, `/\b\d/`}
	return all[g.r.IntN(len(all))]
}

// stream returns what a stream is searched for; it has no end.
func (g *generator) stream() string {
	all := []string{`"ab"`, `/^[a-c]+d/ within 300 bytes`, `{ "abca", /b.?cc/ } any case`,
		`"bcab" within 9000 bytes`}
	text := all[g.r.IntN(len(all))]
	if g.chance(3) {
		text += " or unknown"
	}
	return text
}

// within returns a term on what a tunnel carries; "" where there may be none.
func (g *generator) within() string {
	if g.protecting || g.withins == 60 {
		return ""
	}
	g.withins++
	var terms []string
	used := map[string]bool{}
	for range 1 + g.r.IntN(4) { // what cannot be asked there is left out
		k, not := g.kind(), g.chance(5)
		if k == kEtherFrom || k == kEtherTo || k == kProven ||
			k >= numKinds && (moreNumbers[k-numKinds].Form == field.FormInner ||
				moreNumbers[k-numKinds].Field == field.Stream ||
				isMessage(moreNumbers[k-numKinds])) {
			continue
		}
		if t := g.term(k, false); t != "" && g.fits(used, k, not) {
			if not {
				t = "not " + t
			}
			terms = append(terms, t)
		}
	}
	if len(terms) == 0 {
		return ""
	}
	return "inner( " + strings.Join(terms, " ") + " )"
}

// anyNumber returns a term on a field of which only the table is known.
func (g *generator) anyNumber(ph *field.Phrase) string {
	if isMessage(ph) {
		return g.message(ph)
	}
	if ph.Form == field.FormSuffix {
		return ph.Word + " " + g.suffixes()
	}
	if ph.Form == field.FormInner {
		return g.within()
	}
	if ph.Field == field.Stream {
		return ph.Word + " " + g.stream()
	}
	if ph.Form == field.FormPattern {
		return ph.Word + " " + g.find()
	}
	if ph.Form == field.FormBytes {
		return ph.Word + " " + g.bytes()
	}
	highest := int(ph.Field.Info().Max)
	pool := []int{0, highest / 2, highest}
	for v := 1; v < highest; v *= 4 {
		pool = append(pool, v)
	}
	return ph.Word + " " + g.numbers(0, highest, pool, 1)
}

// match returns the terms of one rule; broad says that none of them narrows it down much. With
// protect it keeps to the one looked-up set that protect rules share.
func (g *generator) match(protect bool) (text string, broad bool) {
	var terms []string
	broad = true
	g.protecting = protect
	used := map[string]bool{}
	n := 1 + g.r.IntN(2) + g.r.IntN(2) + g.r.IntN(2)
	if g.chance(40) {
		n = 0
	}
	for range n {
		k := g.kind()
		not := g.chance(5)
		if t := g.term(k, protect); t != "" && g.fits(used, k, not) {
			broad = broad && (not || k >= kProto && k < numKinds && k != kICMP && k != kVLAN &&
				k != kInner || strings.ContainsAny(t, "<>!"))
			if not {
				t = "not " + t
			}
			terms = append(terms, t)
		}
	}
	return strings.Join(append(terms, g.told()...), " "), broad
}

// fits notes that a match has a term of this kind and sign; false if it has one already, or one
// that contradicts it.
func (g *generator) fits(used map[string]bool, k kind, not bool) bool {
	// What excludes what: a match has one of each class, unless negated.
	class := map[kind]string{
		kFamily: "family", kEther: "family", kICMP: "transport", kFlags: "transport",
		kProto:    "transport",
		kFromPort: "from port", kPort: "port", kFromService: "from service",
		kToService:    "to service",
		kFromEndpoint: "from endpoint", kToEndpoint: "to endpoint",
		kVLAN: "tag", kUntagged: "tag", kInner: "inner",
	}[k]
	if class == "" {
		class = fmt.Sprint(k)
	}
	key := fmt.Sprint(k, not)
	if used[key] || !not && used[class] {
		return false
	}
	used[key] = true
	if !not {
		used[class] = true
	}
	return true
}

func (g *generator) kind() kind {
	total := 0
	for _, w := range g.enabled {
		total += w
	}
	n := g.r.IntN(total)
	for k, w := range g.enabled {
		if n < w {
			return kind(k)
		}
		n -= w
	}
	return kFrom
}

// term is one term without its sign, "" if the policy has nothing to say there.
func (g *generator) term(k kind, protect bool) string {
	switch k {
	case kFromEndpoint:
		return "from " + g.endpointValue()
	case kToEndpoint:
		return "to " + g.endpointValue()
	case kFrom:
		return "from " + g.addresses(protect)
	case kTo:
		return "to " + g.addresses(protect)
	case kFromPort:
		return "from port " + g.portValue()
	case kPort:
		return g.pick("port ", "to port ") + g.portValue()
	case kFromService, kToService:
		name := g.usable(g.serviceSets)
		if name == "" {
			return ""
		}
		return map[kind]string{kFromService: "from ", kToService: "to "}[k] + name
	case kProto:
		if g.chance(3) {
			return "proto " + g.numbers(0, 255,
				[]int{1, 6, 17, 33, 44, 47, 50, 51, 58, 59, 60, 132, 136}, 1)
		}
		return g.pick("tcp", "tcp", "udp", "udp", "udplite", "sctp", "dccp", "icmp", "icmp6",
			"igmp", "gre", "esp", "ah", "ospf", "ipip")
	case kFamily:
		return g.pick("ipv4", "ipv6", "ipv4", "ipv6", "arp")
	case kICMP:
		return g.icmp()
	case kFlags:
		return g.flags()
	case kLen:
		return "len " + g.numbers(0, 65535,
			[]int{20, 28, 40, 46, 60, 64, 100, 468, 576, 1280, 1500}, 1)
	case kTTL:
		return "ttl " + g.numbers(0, 255, []int{0, 1, 2, 64, 128, 254, 255}, 1)
	case kDSCP:
		if g.chance(3) {
			return "dscp " + g.pick("cs0", "cs6", "af11", "af43", "ef", "va", "le",
				"{ cs1, ef, af21 }")
		}
		return "dscp " + g.numbers(0, 63, []int{0, 1, 8, 46, 63}, 1)
	}
	return g.linkTerm(k)
}

// linkTerm returns a term about what is below IP, or about fragments.
func (g *generator) linkTerm(k kind) string {
	if k >= numKinds {
		return g.anyNumber(moreNumbers[k-numKinds])
	}
	switch k {
	case kVLAN:
		return "vlan " + g.numbers(1, 4095, g.vlans, 1)
	case kInner:
		return "inner-vlan " + g.numbers(1, 4095, g.vlans, 1)
	case kUntagged:
		return "untagged"
	case kEther:
		return "ether " + g.pick("0x88cc", "arp", "ipv4", "ipv6", "lldp", "pppoe", "mpls",
			"{ arp, 0x0842, ipv6 }", "0x0026", "{ ipv4, ipv6 }", "0xffff")
	case kEtherFrom:
		return "ether from " + g.macList()
	case kEtherTo:
		return "ether to " + g.macList()
	case kProven:
		return "proven"
	}
	return "fragments"
}

// suffixes are lower halves of IPv6 addresses, few or many.
func (g *generator) suffixes() string {
	one := func() string {
		lo := g.v6[g.r.IntN(len(g.v6))][1]
		switch g.r.IntN(4) {
		case 0:
			lo = g.r.Uint64()
		case 1:
			lo += uint64(g.between(-2, 2))
		case 2:
			lo = []uint64{0, 1, 0xa, math.MaxUint64, math.MaxUint64 - 1, 1 << 63}[g.r.IntN(6)]
		}
		var a [16]byte
		binary.BigEndian.PutUint64(a[8:], lo)
		return netip.AddrFrom16(a).String() + "/64"
	}
	if g.chance(2) {
		return one()
	}
	return braces(g.some(g.between(1, 12), one))
}

func (g *generator) macList() string {
	if g.chance(2) {
		return g.pick(g.macs...)
	}
	return braces(g.some(g.between(1, 4), func() string { return g.pick(g.macs...) }))
}

func braces(elems []string) string { return "{ " + strings.Join(elems, ", ") + " }" }

// numbers returns a value, range, list or comparison on numbers from lo to hi, mostly of the pool
// and never one that holds for none.
func (g *generator) numbers(lo, hi int, pool []int, width int) string {
	one := func() int {
		if g.chance(3) {
			return g.between(lo, hi)
		}
		return min(max(pool[g.r.IntN(len(pool))]+g.between(-width, width), lo), hi)
	}
	elem := func() string {
		a := one()
		if g.chance(2) {
			return fmt.Sprint(a)
		}
		b := one()
		if g.chance(2) {
			b = min(a+g.between(0, 40), hi)
		}
		if a == b {
			return fmt.Sprint(a)
		}
		return fmt.Sprintf("%d-%d", min(a, b), max(a, b))
	}
	switch g.r.IntN(4) {
	case 0:
		return elem()
	case 1:
		return braces(g.some(g.between(1, 8), elem))
	case 2:
		return fmt.Sprint(one())
	}
	v := min(max(one(), lo+1), hi-1)
	return fmt.Sprintf("%s %d", g.pick("<", "<=", ">", ">=", "=", "!="), v)
}

func (g *generator) portValue() string {
	if name := g.usable(g.portSets); name != "" && g.chance(4) {
		return name
	}
	return g.numbers(0, 65535, g.ports, 1)
}

func (g *generator) portElement() string {
	p := g.ports[g.r.IntN(len(g.ports))]
	if g.chance(2) {
		return fmt.Sprint(p)
	}
	q := min(p+g.between(1, 1000), 65535)
	if p == q {
		return fmt.Sprint(p)
	}
	return fmt.Sprintf("%d-%d", p, q)
}

func (g *generator) serviceElement() string {
	return g.pick("tcp", "udp", "udplite", "sctp", "dccp") + "/" + g.portElement()
}

// endpointElement returns an address with a service, a protocol, or all ports of one.
func (g *generator) endpointElement() string {
	switch g.r.IntN(6) {
	case 0:
		return g.address() + " " + g.pick("icmp", "icmp6", "gre", "esp", "ospf", "igmp")
	case 1:
		return g.address() + " " + g.pick("tcp", "udp", "sctp")
	case 2: // many that differ in the port alone, or not at all
		return g.address() + " tcp/" + g.portElement()
	}
	return g.address() + " " + g.serviceElement()
}

// endpointValue returns a set of endpoints, a list, or one.
func (g *generator) endpointValue() string {
	name := g.usable(g.endpointSets)
	switch {
	case name != "" && !g.chance(4):
		return name
	case g.chance(3):
		return g.address() + " " + g.serviceElement()
	}
	return braces(g.some(g.between(1, 12), g.endpointElement))
}

// usable is one of the sets that a rule may name here, or "".
func (g *generator) usable(names []string) string {
	var ok []string
	for _, n := range names {
		if !g.protecting || !slices.Contains(g.files, n) {
			ok = append(ok, n)
		}
	}
	if len(ok) == 0 {
		return ""
	}
	return g.pick(ok...)
}

func (g *generator) icmp() string {
	one := func() string {
		t := []int{0, 1, 2, 3, 5, 8, 11, 128, 129, 133, 134, 135, 136, 137, 255}[g.r.IntN(15)]
		if g.chance(2) {
			return fmt.Sprint(t)
		}
		return fmt.Sprintf("%d/%d", t, []int{0, 1, 4, 255}[g.r.IntN(4)])
	}
	word := g.pick("icmp", "icmp6") + " type "
	switch g.r.IntN(4) {
	case 0:
		return word + "echo-request"
	case 1:
		return word + braces(g.some(g.between(1, 5), one))
	}
	return word + one()
}

// flags is syn, a list of flags that are set, or flags under a mask.
func (g *generator) flags() string {
	names := []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"}
	subset := func(from []string) []string {
		var s []string
		for _, n := range from {
			if g.chance(3) {
				s = append(s, n)
			}
		}
		return s
	}
	switch g.r.IntN(3) {
	case 0:
		return "syn"
	case 1:
		s := subset(names)
		if s == nil {
			s = []string{g.pick(names...)}
		}
		return "flags " + strings.Join(s, ",")
	}
	mask := subset(names)
	if mask == nil {
		mask = []string{"syn", "ack"}
	}
	value := subset(mask)
	if value == nil {
		value = []string{"none"}
	}
	return "flags " + strings.Join(value, ",") + "/" + strings.Join(mask, ",")
}

// addresses returns what stands behind from or to.
func (g *generator) addresses(protect bool) string {
	switch g.r.IntN(6) {
	case 0:
		if g.chance(6) {
			return "any"
		}
	case 1:
		return braces(g.some(g.between(1, 12), g.address))
	case 2, 3:
		if s := g.addressSetName(protect); s != "" {
			return s
		}
	}
	return g.address()
}

func (g *generator) addressSetName(protect bool) string {
	names := g.addressSets
	if !protect {
		names = append(names[:len(names):len(names)], g.lookedUp...)
	} else {
		names = nil
		for _, n := range g.addressSets {
			if strings.HasPrefix(n, "net") {
				names = append(names, n)
			}
		}
		if g.tableSet != "" {
			names = append(names, g.tableSet)
		}
	}
	if len(names) == 0 {
		return ""
	}
	name := g.pick(names...)
	if protect && name == g.tableSet {
		g.tableSet = "" // one look-up for all protect rules together
	}
	return name
}

// address returns an address, prefix or range near one of the bases, so that they nest and meet.
func (g *generator) address() string {
	if g.chance(3) {
		return g.address6()
	}
	base := g.v4[g.r.IntN(len(g.v4))]
	if g.chance(3) {
		base ^= uint32(g.r.IntN(256)) << g.r.IntN(24)
	}
	bits := []int{0, 1, 4, 8, 12, 16, 18, 20, 23, 24, 24, 25, 28, 30, 31, 32, 32}[g.r.IntN(17)]
	if bits == 0 && !g.chance(10) {
		bits = 32
	}
	p := netip.PrefixFrom(addr4(base), bits).Masked()
	if g.chance(6) {
		end := uint32(min(uint64(base)+1+uint64(g.r.IntN(1<<g.r.IntN(20))), 1<<32-1))
		return fmt.Sprintf("%s-%s", addr4(min(base, end-1)), addr4(end))
	}
	return prefixText(p)
}

func (g *generator) address6() string {
	base := g.v6[g.r.IntN(len(g.v6))]
	if g.chance(3) {
		base[1] ^= uint64(g.r.IntN(256)) << g.r.IntN(56)
	}
	bits := []int{0, 3, 16, 32, 32, 40, 48, 48, 56, 63, 64, 64, 65, 96, 112, 127, 128,
		128}[g.r.IntN(18)]
	if bits == 0 && !g.chance(10) {
		bits = 64
	}
	if g.chance(6) {
		base[1] &^= 1 << 63 // leaves room for the end
		end := [2]uint64{base[0], base[1] + 1 + uint64(g.r.IntN(1<<20))}
		return fmt.Sprintf("%s-%s", addr6(base), addr6(end))
	}
	return prefixText(netip.PrefixFrom(addr6(base), bits).Masked())
}

func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func addr4(v uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

func addr6(v [2]uint64) netip.Addr {
	var b [16]byte
	for i := range 8 {
		b[i] = byte(v[0] >> (56 - 8*i))
		b[8+i] = byte(v[1] >> (56 - 8*i))
	}
	return netip.AddrFrom16(b)
}
