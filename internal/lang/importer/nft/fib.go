package nft

import (
	"encoding/json"
	"net/netip"
	"slices"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// fibType is `fib daddr type` in a chain at the hook input, where a packet is for the machine, for
// a group or for all. The broadcast addresses of networks are in `self`, where a frame to all
// Ethernet addresses tells them from the machine's own. What the machine sends to itself leaves by
// loopback.
func (p *nftRule) fibType(l json.RawMessage, op string, right json.RawMessage) bool {
	key, inner := object(l)
	var f struct {
		Result string
		Flags  []string
	}
	if key != "fib" || json.Unmarshal(inner, &f) != nil || f.Result != "type" ||
		!slices.Equal(f.Flags, []string{"daddr"}) || op != "==" && op != "!=" {
		return false
	}
	if s, ok := scalar(right); ok && s == "local" && p.n.leaves {
		if op == "==" {
			p.Rule.Alts = nil
			p.Rule.AboutLoopback()
		}
		return true
	}
	if len(p.n.opts.Chains) > 0 {
		return false
	}
	types := array(right)
	if set, elems := object(right); set == "set" {
		types = array(elems)
	} else if types == nil {
		types = []json.RawMessage{right}
	}
	p.Rule.AtInput = true
	is := map[string]bool{}
	for _, t := range types {
		s, ok := scalar(t)
		if !ok {
			return false
		}
		is[s] = true
	}
	has := func(word string) bool { return is[word] == (op == "==") }
	groups := match.AddressSpans{match.PrefixSpan(netip.MustParsePrefix("224.0.0.0/4")),
		match.PrefixSpan(netip.MustParsePrefix("ff00::/8"))}
	all := match.AddressSpans{match.PrefixSpan(netip.MustParsePrefix("255.255.255.255/32"))}
	var alts []match.Match
	if has("local") {
		rest := &match.Set{Addresses: match.JoinAddrs(slices.Concat(groups, all))}
		alts = append(alts, importer.AddressIn("dst", rest, true))
	}
	if has("multicast") {
		alts = append(alts, importer.AddressIn("dst", &match.Set{Addresses: groups}, false))
	}
	if has("broadcast") {
		alts = append(alts, importer.AddressIn("dst", &match.Set{Addresses: all}, false))
		if !has("local") {
			alts = append(alts, importer.AddressIn("dst", match.Self, false).With(match.EtherTo,
				match.Just(1<<48-1)).With(match.Ether, match.Only4).Settle())
		}
	}
	switch {
	case has("local") && has("multicast") && has("broadcast"): // all that comes there
	case len(alts) == 0:
		p.Rule.Alts = nil
		p.Remark(importer.Noticed,
			"no packet to an address of another type comes to a chain at the hook "+
				"input", "")
	default:
		p.Both(alts...)
		p.Remark(importer.Changed,
			"which addresses are of the machine and of broadcasts the routing "+
				"table knows: here all but groups and 255.255.255.255 are the machine's, and "+
				"broadcasts of networks are those of `self` in frames to all", "")
	}
	return true
}

// fibPath is `fib saddr . iif oif missing`, also without the interface.
func (p *nftRule) fibPath(l json.RawMessage, op string, right json.RawMessage) bool {
	key, inner := object(l)
	var f struct {
		Result string
		Flags  []string
	}
	if key != "fib" || json.Unmarshal(inner, &f) != nil || f.Result != "oif" || p.n.leaves ||
		op != "==" && op != "!=" {
		return false
	}
	strict := false
	for _, flag := range f.Flags {
		strict = strict || flag == "iif"
		if flag != "iif" && flag != "saddr" && flag != "mark" {
			return false
		}
	}
	var there bool
	switch s, ok := scalar(right); {
	case json.Unmarshal(right, &there) == nil:
	case !ok || s != "0":
		return false
	}
	if !slices.Contains(f.Flags, "saddr") {
		return false
	}
	way := match.Loose
	if strict {
		way = match.Strict
	}
	p.AskPath(way, there == (op == "=="), slices.Contains(f.Flags, "mark"))
	return true
}
