package importer

import (
	"encoding/json"
	"net/netip"
	"slices"
)

// fibType is `fib daddr type` in a chain at the hook input, where a packet is for the machine, for
// a group or for all. The broadcast addresses of networks are in `self`, where a frame to all
// Ethernet addresses tells them from the machine's own.
func (p *nftRule) fibType(l json.RawMessage, op string, right json.RawMessage) bool {
	key, inner := object(l)
	var f struct {
		Result string
		Flags  []string
	}
	if key != "fib" || json.Unmarshal(inner, &f) != nil || f.Result != "type" ||
		!slices.Equal(f.Flags, []string{"daddr"}) || op != "==" && op != "!=" ||
		len(p.n.opts.Chains) > 0 {
		return false
	}
	types := array(right)
	if set, elems := object(right); set == "set" {
		types = array(elems)
	} else if types == nil {
		types = []json.RawMessage{right}
	}
	is := map[string]bool{}
	for _, t := range types {
		s, ok := scalar(t)
		if !ok {
			return false
		}
		is[s] = true
	}
	has := func(word string) bool { return is[word] == (op == "==") }
	groups := addrSpans{prefixSpan(netip.MustParsePrefix("224.0.0.0/4")),
		prefixSpan(netip.MustParsePrefix("ff00::/8"))}
	all := addrSpans{prefixSpan(netip.MustParsePrefix("255.255.255.255/32"))}
	var alts []match
	if has("local") {
		rest := &addrSet{addrs: joinAddrs(slices.Concat(groups, all))}
		alts = append(alts, addressIn("dst", rest, true))
	}
	if has("multicast") {
		alts = append(alts, addressIn("dst", &addrSet{addrs: groups}, false))
	}
	if has("broadcast") {
		alts = append(alts, addressIn("dst", &addrSet{addrs: all}, false))
		if !has("local") {
			alts = append(alts, addressIn("dst", self, false).with(fEtherTo,
				just(1<<48-1)).with(fEther, only4).settle())
		}
	}
	switch {
	case has("local") && has("multicast") && has("broadcast"): // all that comes there
	case len(alts) == 0:
		p.r.alts = nil
		p.remark(Noticed, "no packet to an address of another type comes to a chain at the hook "+
			"input", "")
	default:
		p.both(alts...)
		p.remark(Changed, "which addresses are of the machine and of broadcasts the routing "+
			"table knows: here all but groups and 255.255.255.255 are the machine's, and "+
			"broadcasts of networks are those of `self` in frames to all", "")
	}
	return true
}
