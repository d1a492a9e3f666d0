package importer

import (
	"encoding/json"
	"slices"
)

// askPath has the rule ask the kernel's routes for the source of a packet; marked: the source asks
// with its mark, which `ip rule` may look at, and a policy has none.
func (p *ruleReader) askPath(f numField, holds, marked bool) {
	p.both(match{}.with(f, just(uint64(b2i(holds)))).settle())
	text := pathText
	if marked {
		text += pathMark
	}
	p.remark(Changed, text, pathHint)
}

const (
	pathText = "asks the kernel's routes for the source: `reverse-path` does, on a machine that " +
		"forwards; on others it neither holds nor fails, which `levee up` says"
	pathMark = "; it asks without the packet's mark: what has its way back by an `ip rule` with " +
		"fwmark alone, as beside wg-quick, has none"
	pathHint = "where it does not forward: sysctl -w net.ipv4.conf.lo.forwarding=1, and the same " +
		"for ipv6"
)

// pathModule is what -m rpfilter says.
type pathModule struct{ used, loose, invert, local, marked bool }

// option reads one of them.
func (f *pathModule) option(o string) bool {
	switch o {
	case "--loose":
		f.loose = true
	case "--invert":
		f.invert = true
	case "--accept-local":
		f.local = true
	case "--validmark":
		f.marked = true
	default:
		return false
	}
	return true
}

// finishPath is -m rpfilter: what has a way back, or has none.
func (p *ipRule) finishPath() {
	switch f := p.path; {
	case !f.used:
	case p.t.leaves:
		p.unknown("asks the routing table", "")
	case f.local:
		p.unknown("takes packets from own addresses for such that have a way back "+
			"(--accept-local)", "")
	case f.loose:
		p.askPath(fLoose, !f.invert, f.marked)
	default:
		p.askPath(fStrict, !f.invert, f.marked)
	}
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
	way := fLoose
	if strict {
		way = fStrict
	}
	p.askPath(way, there == (op == "=="), slices.Contains(f.Flags, "mark"))
	return true
}
