package ir

import (
	"slices"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// essentialOf returns the built-in rules of a side of a policy.
func essentialOf(p *policy.Policy) [len(policy.Essential)][][]policy.Term {
	if p.Leaves() {
		return essentialOut
	}
	return essentialTerms
}

// essentialOut are those of what leaves: of DHCP and of multicast listeners it is the other half of
// the talk.
var essentialOut = func() (out [len(policy.Essential)][][]policy.Term) {
	out = essentialTerms
	out[slices.Index(policy.Essential[:], "dhcp")] = [][]policy.Term{
		{
			{Field: field.EtherType, Ranges: one(0x0800)}, {Field: field.Proto, Ranges: one(17)},
			{Field: field.SrcPort, Ranges: one(68)}, {Field: field.DstPort, Ranges: one(67)},
		},
		{
			{Field: field.EtherType, Ranges: one(0x86dd)}, {Field: field.Proto, Ranges: one(17)},
			{Field: field.SrcPort, Ranges: one(546)}, {Field: field.DstPort, Ranges: one(547)},
		},
	}
	out[slices.Index(policy.Essential[:], "mld")] = [][]policy.Term{
		{ // reports and goodbyes: RFC 2710 section 3, RFC 3810 section 5.2
			{Field: field.ICMP6Type, Ranges: []field.Range{
				{Lo: 131 << 8, Hi: 132<<8 | 255}, {Lo: 143 << 8, Hi: 143<<8 | 255},
			}},
			{Field: field.TTL, Ranges: one(1)},
			{Field: field.Fragment, Ranges: one(0)},
		},
	}
	return out
}()

// essentialTerms are the built-in rules of docs/reference/language.md "Nothing essential is cut" as
// alternatives of terms, in the order of policy.Essential.
var essentialTerms = [len(policy.Essential)][][]policy.Term{
	{ // arp
		{{Field: field.EtherType, Ranges: one(0x0806)}},
	},
	{ // nd: RFC 4861 section 6.1 and 7.1 (hop limit 255, code 0), RFC 6980 (no fragments)
		{
			{Field: field.ICMP6Type, Ranges: []field.Range{
				{Lo: 133 << 8, Hi: 133 << 8}, {Lo: 134 << 8, Hi: 134 << 8},
				{Lo: 135 << 8, Hi: 135 << 8},
				{Lo: 136 << 8, Hi: 136 << 8}, {Lo: 137 << 8, Hi: 137 << 8},
			}},
			{Field: field.TTL, Ranges: one(255)},
			{Field: field.Fragment, Ranges: one(0)},
		},
	},
	{ // pmtu: RFC 1191 section 4, RFC 8201 section 4
		{{Field: field.ICMPType, Ranges: one(3<<8 | 4)}},
		{{Field: field.ICMP6Type, Ranges: span(2<<8, 2<<8|255)}},
	},
	{ // dhcp: RFC 2131 section 4.1, RFC 8415 section 7.2
		{
			{Field: field.EtherType, Ranges: one(0x0800)}, {Field: field.Proto, Ranges: one(17)},
			{Field: field.SrcPort, Ranges: one(67)}, {Field: field.DstPort, Ranges: one(68)},
		},
		{
			{Field: field.EtherType, Ranges: one(0x86dd)}, {Field: field.Proto, Ranges: one(17)},
			{Field: field.SrcPort, Ranges: one(547)}, {Field: field.DstPort, Ranges: one(546)},
		},
		{ // no RFC says from which port a server answers: the link does
			{Field: field.EtherType, Ranges: one(0x86dd)}, {Field: field.Proto, Ranges: one(17)},
			{Field: field.SrcAddr, Prefixes: prefixes("fe80::/10")},
			{Field: field.DstAddr, Prefixes: prefixes("fe80::/10")},
			{Field: field.DstPort, Ranges: one(546)},
		},
	},
	{ // mld: RFC 3810 section 5.1 (link-local source, hop limit 1; the code is ignored)
		{
			{Field: field.ICMP6Type, Ranges: span(130<<8, 130<<8|255)},
			{Field: field.SrcAddr, Prefixes: prefixes("fe80::/10")},
			{Field: field.TTL, Ranges: one(1)},
			{Field: field.Fragment, Ranges: one(0)},
		},
	},
	{ // link: IEEE 802.3 annex 57A (slow protocols, LACP among them), IEEE 802.1X (EAPOL)
		{{Field: field.EtherType, Ranges: []field.Range{
			{Lo: 0x8809, Hi: 0x8809}, {Lo: 0x888e, Hi: 0x888e},
		}}},
	},
}
