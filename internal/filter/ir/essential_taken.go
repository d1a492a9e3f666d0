package ir

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// maxBlamed is the number of rules that are told one by one.
const maxBlamed = 20

// Taken warns of rules that drop what an essential rule would pass.
func Taken(prog *Program) (out []Finding) {
	of := take(prog)
	for _, slot := range slices.Sorted(maps.Keys(of)) {
		f := blame(ruleAt(prog.Policy, slot), of[slot])
		if rest := len(of) - maxBlamed; len(out) == maxBlamed && rest > 1 {
			f.Message += fmt.Sprintf("; so do %d rules behind it", rest-1)
			return append(out, f)
		}
		out = append(out, f)
	}
	return out
}

// take finds what rules drop of the vitals, by slot. The boxes of a vital hold its packets that no
// rule has decided yet. Each rule in turn cuts its packets out; a drop rule has taken what it cuts
// out. Boxes may become too small, but never too large: no rule is blamed wrongly. Of many boxes,
// and of long lists of addresses, some are forgotten.
func take(prog *Program) map[int][]taking {
	p := prog.Policy
	if !p.Essential || p.Leaves() { // vitals arrive
		return nil
	}
	t := takings{p: p, of: map[int][]taking{}}
	w := newWork(p)
	for i := range vitals {
		v := &vitals[i]
		if v.serves == NonIP && (passes(prog, IPv4) || passes(prog, IPv6)) ||
			passes(prog, v.serves) {
			t.cut(v, prog.Lists[v.class.Index()], v.boxes(w))
		}
	}
	return t.of
}

// passes says whether a policy lets packets of a family through, besides what is essential.
func passes(prog *Program, f Family) bool {
	p := prog.Policy
	for _, c := range Classes() {
		if c.Family == f && slices.ContainsFunc(prog.Lists[c.Index()], func(r Rule) bool {
			return r.Action.Verdict == Pass &&
				(r.Slot < p.EssentialSlot(0) || r.Slot == p.DefaultSlot())
		}) {
			return true
		}
	}
	return false
}

// takings lists the essential packets that drop rules take, by slot.
type takings struct {
	p  *policy.Policy
	of map[int][]taking
}

// taking is some of what a rule takes of a vital.
type taking struct {
	*vital
	part *box
	from []netip.Prefix // sources, if the rule lists sources
}

// Bounds of the work: boxes, prefixes on one side of a box, and elements of lists.
const (
	maxBoxes        = 24
	maxPrefixes     = 128
	fewQuestions    = 1 << 20
	questionsOfRule = 32
)

// cut cuts the packets of each rule of a list out of the boxes.
func (t *takings) cut(v *vital, rules []Rule, boxes []*box) {
	budget := fewQuestions + questionsOfRule*len(rules)
	var left []*box
	for i := range rules {
		r := &rules[i]
		if r.Slot >= t.p.EssentialSlot(0) || len(boxes) == 0 || budget <= 0 {
			return
		}
		conds, sure := certain(r)
		if !r.Action.Decides() || !sure && (conds == nil || r.Action.Verdict != Drop) {
			continue
		}
		blamable := r.Action.Takes() && !v.meant(r) && !forged(r)
		left = left[:0]
		for _, b := range boxes {
			if !b.meets(conds, &budget) {
				left = append(left, b)
				continue
			}
			part, rest := b.cut(conds)
			if part != nil && blamable {
				t.blame(v, r, part)
			}
			if part == nil || !sure {
				rest = []*box{b}
			}
			left = append(left, rest...)
		}
		boxes, left = left[:min(len(left), maxBoxes)], boxes
	}
}

// certain gives the questions whose answers are known without the contents of dynamic sets, and
// whether these are all. A drop rule for what is in a dynamic set takes nothing for certain, so
// that it gives none. One for what is not in it takes what the set does not have, and mostly that
// is nearly all. What boxes have no side for is never certain.
func certain(r *Rule) (conds []Cond, sure bool) {
	n := 0 // that are
	for n < len(r.Conds) && !r.Conds[n].Dynamic() && r.Conds[n].inBoxes() {
		n++
	}
	if n == len(r.Conds) {
		return r.Conds, true
	}
	conds = append([]Cond{}, r.Conds[:n]...)
	for i := n; i < len(r.Conds); i++ {
		switch c := &r.Conds[i]; {
		case !c.inBoxes():
			return nil, false
		case !c.Dynamic():
			conds = append(conds, *c)
		case !c.Not:
			return nil, false
		}
	}
	return conds, false
}

// blame notes what a rule takes, unless it says whom it is about.
func (t *takings) blame(v *vital, r *Rule, part *box) {
	place, destination := places(ruleAt(t.p, r.Slot))
	if place || destination && !part.group {
		return
	}
	var from []netip.Prefix
	if listsSources(r) {
		if part.public {
			return
		}
		for _, p := range part.addrs[0] {
			if p.Bits() <= wide(p) {
				from = append(from, p)
			}
		}
		if from == nil {
			return
		}
	}
	all := t.of[r.Slot]
	if !slices.ContainsFunc(all, func(k taking) bool { return k.vital == v }) {
		t.of[r.Slot] = append(all, taking{v, part, from})
	}
}

// forged says whether a rule is about packets whose source has no way back: what is essential comes
// from there.
func forged(r *Rule) bool {
	return slices.ContainsFunc(r.Conds, func(c Cond) bool {
		return (c.Field == field.StrictPath || c.Field == field.LoosePath) && c.Ranges[0].Lo == 0
	})
}

// wide returns the length from which on a prefix is a network or a part of one, not a few hosts.
func wide(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 24
	}
	return 64
}

// places says whether a rule is about all frames of a VLAN or of a neighbour, or about all to a
// destination. Such a rule ends what the essential packets would serve as well.
func places(r *policy.Rule) (place, destination bool) {
	for i := range r.Match {
		switch r.Match[i].Field {
		case field.EtherType:
		case field.VLAN, field.InnerVLAN, field.Tags, field.SrcMAC:
			place = true
		case field.DstAddr, field.DstMAC:
			destination = true
		default:
			return false, false
		}
	}
	return place, destination
}

// listsSources says whether a rule names its sources, rather than the ones that it leaves out.
func listsSources(r *Rule) bool {
	return slices.ContainsFunc(r.Conds, func(c Cond) bool {
		return !c.Not && (c.Field == field.SrcAddr || c.Field == field.SrcEndpoint)
	})
}

// meant says whether a rule is about this traffic and no other, so that the operator has decided.
func (v *vital) meant(r *Rule) bool {
	return slices.ContainsFunc(r.Conds, func(c Cond) bool {
		steps := 0
		named := v.named[c.Field]
		return c.Ranges != nil && named != nil && within(c.Ranges, named, &steps)
	})
}

// blame returns the warning about a rule, which takes some vitals, in their order.
func blame(r *policy.Rule, all []taking) Finding {
	var what, keep []string
	for i := range all {
		keep = append(keep, "`pass "+all[i].keep+"`")
		if i > 0 && all[i-1].essential == all[i].essential {
			continue
		}
		s := policy.Essential[all[i].essential]
		from := all[i].from
		if i+1 < len(all) && all[i+1].essential == all[i].essential {
			from = slices.Concat(from, all[i+1].from) // of the other family
		}
		for n, p := range from[:min(len(from), 3)] {
			s += []string{" from ", ", ", ", "}[n] + p.String()
		}
		if len(from) > 3 {
			s += ", ..."
		}
		what = append(what, fmt.Sprintf("%s (%s)", s, all[i].loss))
	}
	does := "drops"
	if r.Ring != nil {
		does = "hands to a ring"
	}
	return Finding{r.Pos, "this rule " + does + " what essential rules would let through: " +
		strings.Join(what, "; "),
		"to keep it, put " + strings.Join(keep,
			", ") + " above this rule; to lose it on purpose, the same with `drop`"}
}

// vital is the traffic of one alternative of an essential rule, as it is met in networks.
type vital struct {
	essential, alternative int // indices into essentialTerms
	class                  Class
	// nothing is lost where a policy passes no packet of this family; NonIP is both
	serves Family
	// the hop limit, if it is not that of a packet that comes over routers
	hops   uint64
	length field.Range
	// sources that are not public: a list of such addresses names nobody
	near     []netip.Prefix
	group    []netip.Prefix // destinations of every machine
	groupMAC []field.Range
	// what a rule asks for that is about this traffic alone
	named map[field.Field][]field.Range
	loss  string
	keep  string // the rule that keeps it, without its action
}

var (
	broadcast = one(1<<48 - 1)
	private4  = prefixes("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12",
		"192.168.0.0/16")
	private6  = prefixes("fc00::/7", "fe80::/10")
	dhcpPorts = []field.Range{{Lo: 67, Hi: 68}, {Lo: 546, Hi: 547}}
)

// Lengths: RFC 826 with the padding of Ethernet; RFC 4861 section 4; RFC 1812 section 4.3.2.3 and
// RFC 4443 section 3.2; RFC 951 with the least options of an answer, and RFC 2131 section 2.
// Neighbour discovery from other sources than fe80::/10 serves only these sources.
var vitals = []vital{
	{essential: 0, serves: IPv4, length: field.Range{Lo: 28, Hi: 46}, groupMAC: broadcast,
		named: map[field.Field][]field.Range{field.EtherType: one(0x0806)},
		loss:  "neighbours cannot reach this machine over IPv4", keep: "arp"},
	{essential: 1, class: Class{IPv6, ICMP, false}, serves: IPv6,
		length: field.Range{Lo: 48, Hi: 1280}, near: prefixes("fe80::/10"),
		group: prefixes("ff02::1/128", "ff02::1:ff00:0/104"),
		groupMAC: []field.Range{{Lo: 0x333300000001, Hi: 0x333300000001},
			{Lo: 0x3333ff000000, Hi: 0x3333ffffffff}},
		named: map[field.Field][]field.Range{field.ICMP6Type: span(133<<8, 137<<8|255)},
		loss:  "IPv6 ends when neighbours and routers are forgotten",
		keep:  "icmp6 type 133-137 ttl 255"},
	{essential: 2, class: Class{IPv4, ICMP, false}, serves: IPv4,
		length: field.Range{Lo: 56, Hi: 576}, near: private4,
		named: map[field.Field][]field.Range{field.ICMPType: one(3<<8 | 4)},
		loss:  "large transfers hang", keep: "icmp type 3/4"},
	{essential: 2, alternative: 1, class: Class{IPv6, ICMP, false}, serves: IPv6,
		length: field.Range{Lo: 96, Hi: 1280}, near: private6,
		named: map[field.Field][]field.Range{field.ICMP6Type: span(2<<8, 2<<8|255)},
		loss:  "large transfers hang", keep: "icmp6 type 2"},
	{essential: 3, class: Class{IPv4, UDP, false}, serves: IPv4,
		length: field.Range{Lo: 272, Hi: 576}, near: private4,
		group: prefixes("255.255.255.255/32"), groupMAC: broadcast,
		named: map[field.Field][]field.Range{field.SrcPort: dhcpPorts, field.DstPort: dhcpPorts},
		loss:  "the address is lost at renewal", keep: "ipv4 udp from port 67 port 68"},
	{essential: 3, alternative: 1, class: Class{IPv6, UDP, false}, serves: IPv6,
		length: field.Range{Lo: 80, Hi: 1280}, near: private6,
		named: map[field.Field][]field.Range{field.SrcPort: dhcpPorts, field.DstPort: dhcpPorts},
		loss:  "the address is lost at renewal", keep: "ipv6 udp from port 547 port 546"},
	{essential: 4, class: Class{IPv6, ICMP, false}, serves: IPv6,
		length: field.Range{Lo: 64, Hi: 1280}, hops: 1,
		group: prefixes("ff02::1/128", "ff02::1:ff00:0/104"),
		groupMAC: []field.Range{{Lo: 0x333300000001, Hi: 0x333300000001},
			{Lo: 0x3333ff000000, Hi: 0x3333ffffffff}},
		named: map[field.Field][]field.Range{field.ICMP6Type: span(130<<8, 132<<8|255)},
		loss:  "a switch that snoops forgets this machine, and IPv6 ends",
		keep:  "icmp6 type mld-query"},
	{essential: 5, length: field.Range{Lo: 46, Hi: 1500},
		groupMAC: []field.Range{{Lo: 0x0180c2000000, Hi: 0x0180c200000f}},
		named: map[field.Field][]field.Range{field.EtherType: {{Lo: 0x8809, Hi: 0x8809},
			{Lo: 0x888e, Hi: 0x888e}}},
		loss: "a bond that speaks LACP, or a port with 802.1X, goes down",
		keep: "ether { 0x8809, 0x888e }"},
}

// Other sources than the near ones: what is public.
var (
	public4 = without(prefixes("0.0.0.0/0"),
		prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8",
			"169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/3"))
	public6 = prefixes("2000::/3")
)

func prefixes(text ...string) (out []netip.Prefix) {
	for _, s := range text {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// absent stands for the id of a tag that a frame does not have.
const absent = 0x1000

// boxes returns the packets of a vital, with and without a tag: from near sources, from public
// ones, and to a group of machines.
func (v *vital) boxes(w *work) (out []*box) {
	match := essentialTerms[v.essential][v.alternative]
	conds := newAcross(match, w).in(v.class).conds
	for tags := range uint64(2) {
		b := &box{}
		for f := range field.NumFields {
			b.numbers[f] = domains[f][v.class.Index()]
		}
		b.numbers[field.Tags] = one(tags)
		b.numbers[field.VLAN], b.numbers[field.InnerVLAN] = one(absent), one(absent)
		if tags > 0 {
			b.numbers[field.VLAN] = span(1, absent-1)
		}
		b.numbers[field.Len] = []field.Range{v.length}
		if v.class.Family != NonIP {
			// Systems start at 64 or more, and no path has more than 32 hops. Routers mark errors
			// by precedence 6 or 7 (RFC 1812 section 4.3.2.5).
			b.numbers[field.TTL] = span(32, 255)
			if v.hops != 0 {
				b.numbers[field.TTL] = one(v.hops)
			}
			b.numbers[field.DSCP] = []field.Range{{Lo: 0, Hi: 0}, {Lo: 48, Hi: 48},
				{Lo: 56, Hi: 56}}
		}
		public := public4
		b.addrs[0], b.addrs[1] = v.near, prefixes("0.0.0.0/0")
		if v.class.Family == IPv6 {
			b.addrs[1], public = prefixes("::/0"), public6
		}
		if v.near == nil {
			b.addrs[0] = b.addrs[1] // of which the conditions leave what they ask for
		}
		for i := range conds {
			b, _ = b.split(&conds[i])
		}
		out = append(out, b)
		if v.near != nil {
			far := *b
			far.addrs[0], far.public = public, true
			out = append(out, &far)
		}
		if v.groupMAC != nil {
			all := *b
			all.numbers[field.DstMAC], all.group = v.groupMAC, true
			if v.group != nil {
				all.addrs[1] = v.group
			}
			out = append(out, &all)
		}
	}
	return out
}
