package nft

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// natTarget is where a statement dnat or redirect sends packets.
type natTarget struct {
	Addr, Port, Flags json.RawMessage
	Family            string
}

// nat reads a statement dnat or redirect. Where its target is taken from a map, the rule becomes
// one for each.
func (p *nftRule) nat(key string, inner json.RawMessage) {
	const what = " does what levee does not"
	var to natTarget
	_ = json.Unmarshal(inner, &to)
	p.done = true
	p.Rule.Unknown, p.guards = append(p.Rule.Unknown, p.guards...), nil
	if err := p.natMap(key, to); err != nil {
		p.split = nil
		p.Unknown(importer.Printable(err.Error(), 200), "keep it in nft")
	}
	if p.split == nil {
		p.sentTo(p.Rule, key, to)
		p.Unknown(key+what, "keep it in nft")
	}
	for _, r := range p.split {
		r.Unknown = append(r.Unknown, importer.Reason{What: key + what, Instead: "keep it in nft"})
	}
}

// natMap makes a rule for each target of a map; none where the target is no map.
func (p *nftRule) natMap(key string, to natTarget) error {
	at := &to.Addr
	kind, inner := object(to.Addr)
	if kind != "map" {
		at = &to.Port
		kind, inner = object(to.Port)
	}
	var m struct{ Key, Data json.RawMessage }
	if kind != "map" || json.Unmarshal(inner, &m) != nil {
		return nil
	}
	if rest, _ := object(to.Port); at == &to.Addr && rest == "map" {
		return errors.New(key + " takes address and port from two maps")
	}
	elems, err := p.keys(m.Data)
	if err != nil {
		return err
	}
	if numbers := drawnOf(m.Key); numbers != nil {
		return p.drawn(key, to, elems, numbers)
	}
	groups, err := p.byTarget(elems)
	if err != nil {
		return err
	}
	p.finishQuiet()
	parts, several := p.mapKey(m.Key)
	for _, g := range groups {
		r := *p.Rule
		r.Unknown = slices.Clone(p.Rule.Unknown)
		p.narrow(&r, parts, several, g.keys)
		one := to
		*map[bool]*json.RawMessage{true: &one.Addr, false: &one.Port}[at == &to.Addr] = g.inner
		if kind, list := object(g.inner); kind == "concat" {
			both := array(list)
			if len(both) != 2 || len(to.Port) > 0 {
				return fmt.Errorf("%s is not an address and a port", match.Quote(string(g.inner)))
			}
			one.Addr, one.Port = both[0], both[1]
		}
		p.sentTo(&r, key, one)
		p.split = append(p.split, &r)
	}
	return nil
}

// drawnOf returns the numbers of which an expression draws one, by chance, in turn, or by a hash;
// nil for any other.
func drawnOf(key json.RawMessage) match.Spans {
	switch kind, inner := object(key); kind {
	case "numgen", "jhash", "symhash":
		var d struct{ Mod, Offset uint32 }
		if json.Unmarshal(inner, &d) == nil && d.Mod > 0 {
			first := uint64(d.Offset)
			return match.Between(first, first+uint64(d.Mod)-1)
		}
	}
	return nil
}

// drawn makes one rule that sends packets to any of the addresses of a map. It fails where a number
// that may be drawn leads nowhere, or where the rules judge what is sent: by its port.
func (p *nftRule) drawn(key string, to natTarget, elems []json.RawMessage,
	drawn match.Spans) error {
	p.finishQuiet()
	var numbers match.Spans
	var in match.AddressSpans
	for _, e := range elems {
		pair := array(e)
		if len(pair) != 2 {
			return fmt.Errorf("%s is not an element of a map", match.Quote(string(e)))
		}
		target := pair[1]
		if kind, list := object(target); kind == "concat" && len(array(list)) == 2 {
			target = array(list)[0]
		}
		number, ok := ends(pair[0])
		address, ok2 := ends(target)
		n, err := match.ParseSpansOf(number, "-", drawn[0].Hi)
		a, err2 := match.ParseSpan(address)
		if !ok || !ok2 || err != nil || err2 != nil {
			return fmt.Errorf("%s is not an address by a number", match.Quote(string(e)))
		}
		numbers, in = append(numbers, n...), append(in, a)
	}
	in = match.JoinAddrs(in)
	if !drawn.Within(match.JoinSpans(numbers)) || len(to.Addr) == 0 ||
		len(in.Minus(in.Minus(match.Loopback))) > 0 {
		return errors.New(key + " draws a destination, which may be none or one of this machine")
	}
	r := *p.Rule
	r.Unknown = slices.Clone(p.Rule.Unknown)
	family := match.Only6
	if in[0].Lo.Is4() {
		family = match.Only4
	}
	of := importer.RuleReader{Out: p.Out, Rule: &r}
	of.Both(match.Match{}.With(match.Ether, family))
	of.SentTo(key, in, false, nil)
	p.split = append(p.split, &r)
	return nil
}

// byTarget sorts the elements of a map by what they lead to, in order of appearance.
func (p *nftRule) byTarget(elems []json.RawMessage) (groups []*keyGroup, err error) {
	index := map[string]*keyGroup{}
	for _, e := range elems {
		pair := array(e)
		if len(pair) != 2 {
			return nil, fmt.Errorf("%s is not an element of a map", match.Quote(string(e)))
		}
		id := string(pair[1])
		if index[id] == nil {
			index[id] = &keyGroup{inner: pair[1]}
			groups = append(groups, index[id])
		}
		index[id].keys = append(index[id].keys, pair[0])
	}
	return groups, nil
}

// sentTo notes where a rule sends its packets, unless that cannot be read.
func (p *nftRule) sentTo(r *importer.ChainRule, key string, to natTarget) {
	var in match.AddressSpans
	if text, ok := ends(to.Addr); len(to.Addr) > 0 {
		a, err := match.ParseSpan(text)
		if !ok || err != nil {
			return
		}
		in = match.AddressSpans{a}
	}
	var port *match.Ports
	if text, ok := ends(to.Port); len(to.Port) > 0 {
		s, err := match.ParseSpansOf(text, "-", 0xffff)
		if !ok || err != nil {
			return
		}
		var flags []string
		if one, ok := scalar(to.Flags); ok {
			flags = []string{one}
		} else {
			_ = json.Unmarshal(to.Flags, &flags)
		}
		port = &match.Ports{Span: s[0], Any: slices.ContainsFunc(flags, func(f string) bool {
			return strings.HasSuffix(f, "random")
		})}
	}
	of := importer.RuleReader{Out: p.Out, Rule: r}
	switch { // in a table of both
	case to.Family == "ip", in != nil && in[0].Lo.Is4():
		of.Both(match.Match{}.With(match.Ether, match.Only4))
	case to.Family == "ip6", in != nil:
		of.Both(match.Match{}.With(match.Ether, match.Only6))
	}
	of.SentTo(key, in, key == "dnat" && in == nil, port)
}

// ends reads one value, or a range, as its ends with - between them.
func ends(raw json.RawMessage) (string, bool) {
	if s, ok := scalar(raw); ok {
		return s, true
	}
	var r struct{ Range []json.RawMessage }
	if json.Unmarshal(raw, &r) != nil || len(r.Range) != 2 {
		return "", false
	}
	lo, ok := scalar(r.Range[0])
	hi, ok2 := scalar(r.Range[1])
	return lo + "-" + hi, ok && ok2
}
