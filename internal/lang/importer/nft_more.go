package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// iface is a match on the incoming interface: a policy protects one.
func (p *nftRule) iface(r *chainRule, names []string, not bool) ([]match, error) {
	dev, hit, onlyLo := p.n.opts.Device, false, len(names) > 0
	tags := spans{}
	for _, n := range names {
		if v := vlanOf(n, dev); v != nil {
			tags = joinSpans(append(tags, v...))
			r.remarks = append(r.remarks, r.remark(Changed, vlanRemark(n, dev), ""))
		}
		stem, wild := strings.CutSuffix(n, "*")
		hit = hit || dev != "" && (n == dev || wild && strings.HasPrefix(dev, stem))
		onlyLo = onlyLo && n == "lo"
	}
	list := printable(strings.Join(names, ", "), 60)
	switch {
	case onlyLo && !not && dev != "lo":
		r.aboutLoopback()
	case dev == "" && !onlyLo:
		r.unknown = append(r.unknown, reason{"asks for interface " + quote(list) +
			", and a policy protects one interface", "choose one with --dev"})
		return nil, nil
	case len(tags) > 0 && not:
		r.unknown = append(r.unknown, reason{"asks for other interfaces than " + quote(list) +
			", a VLAN of " + dev, "write `not vlan` and `untagged`"})
		return nil, nil
	case len(tags) > 0 && !hit:
		return []match{match{}.with(fVLAN, tags)}, nil
	case hit != not:
		return []match{{}}, nil
	default:
		r.absent = true
		r.remarks = append(r.remarks, r.remark(LeftOut,
			"is about interface "+quote(list)+", by which nothing comes to "+quote(dev), ""))
	}
	return never, nil
}

// state is a match on the state of the connection.
func (p *nftRule) state(r *chainRule, states []string, not bool) {
	upper := []string{}
	for _, s := range states {
		upper = append(upper, strings.ToUpper(s))
	}
	if not {
		upper = negated(upper)
	}
	if r.states != nil {
		upper = slices.DeleteFunc(upper,
			func(s string) bool { return !slices.Contains(r.states, s) })
	}
	r.states = upper
}

// direction is `ct direction`, of a rule about UDP or ICMP: what the other side begins is original.
// A connection of TCP is established whichever side has begun it.
func (p *nftRule) direction(l json.RawMessage, op string, right json.RawMessage) []match {
	key, inner := object(l)
	var c struct{ Key string }
	s, _ := scalar(right)
	if key != "ct" || json.Unmarshal(inner, &c) != nil || c.Key != "direction" || op != "==" ||
		slices.ContainsFunc(p.r.alts, func(m match) bool {
			return m.f[fProto] == nil || !m.f[fProto].within(noTracked) ||
				len(m.f[fProto].and(just(6))) > 0
		}) {
		return nil
	}
	switch s {
	case "original":
		return settled([]match{udpOnly.with(fKnown, just(0)), match{}.with(fICMP, requests),
			match{}.with(fICMP6, requests6)})
	case "reply":
		return settled([]match{match{}.with(fKnown, just(1)).with(fProto, just(6).not(255))})
	}
	return nil
}

// fragment is a match on `ip frag-off & MASK`.
func (p *nftRule) fragment(mask uint64, op string, right json.RawMessage) error {
	s, ok := scalar(right)
	zero := op == "==" && s == "0"
	in := spans(nil)
	switch {
	case !ok || !zero && !(op == "!=" && s == "0"):
	case mask == 0x1fff && zero:
		in = between(whole, first)
	case mask == 0x1fff:
		in = just(later)
	case mask == 0x3fff && zero:
		in = just(whole)
	case mask == 0x3fff:
		in = between(first, later)
	}
	if in == nil {
		p.unknown("asks for bits of the fragment offset", "write `fragments` or `not fragments`")
		return nil
	}
	p.both(match{}.with(fEther, only4).with(fFragment, in).settle())
	return nil
}

// flagsLeft is the mask of `tcp flags & MASK`, or nil for `tcp flags`.
func flagsLeft(raw json.RawMessage) (mask json.RawMessage, ok bool) {
	if isFlags(raw) {
		return nil, true
	}
	key, inner := object(raw)
	parts := array(inner)
	if key == "&" && len(parts) == 2 && isFlags(parts[0]) {
		return parts[1], true
	}
	return nil, false
}

// flagValue reads "syn", 2, ["syn","ack"] and {"|": ["syn", "ack"]}.
func flagValue(raw json.RawMessage, depth int) (v uint8, err error) {
	if s, ok := scalar(raw); ok {
		if n, err := parseSpansOf(s, ":", 255); err == nil {
			return uint8(n[0].Lo), nil
		}
		return parseFlags(s)
	}
	list := array(raw)
	if key, inner := object(raw); key == "|" {
		list = array(inner)
	}
	if list == nil || depth > maxNested {
		return 0, fmt.Errorf("%s are not TCP flags", quote(string(raw)))
	}
	for _, e := range list {
		f, err := flagValue(e, depth+1)
		if err != nil {
			return 0, err
		}
		v |= f
	}
	return v, nil
}

// flags is a match on TCP flags.
func (p *nftRule) flags(maskText json.RawMessage, op string, right json.RawMessage) error {
	mask := uint8(0xff)
	if maskText != nil {
		m, err := flagValue(maskText, 0)
		if err != nil {
			return p.soften(err)
		}
		mask = m
	}
	values := []json.RawMessage{right}
	if key, inner := object(right); key == "set" {
		values = array(inner)
	}
	tcp := match{}.with(fProto, just(6)).with(fPort, allPorts).settle() // a TCP header is there
	alts, all := []match{}, match{}
	for _, raw := range values {
		v, err := flagValue(raw, 0)
		if err != nil {
			return p.soften(err)
		}
		f := flagMatch{mask, v}
		any := flagMatch{v, 0} // none of v is set
		switch {
		case op == "in" && v != 0:
			alts = append(alts, match{}.withoutFlags(any).settle())
		case op == "!" && v != 0:
			all = all.withFlags(any).settle()
		case op == "==" && v&^mask == 0:
			alts = append(alts, flagsOrAll(tcp, f))
		case op == "==": // cannot hold
		case op == "!=" && v&^mask == 0 && mask != 0:
			all = all.withoutFlags(f).settle()
		case op == "!=" && mask == 0 && v == 0:
			all = never[0]
		case op == "!=":
		default:
			return p.soften(fmt.Errorf("compares TCP flags with %s", quote(op)))
		}
	}
	if op == "!=" || op == "!" {
		if !all.hasTransport() && !all.never {
			all = tcp
		}
		alts = []match{all}
	}
	p.both(alts...)
	return nil
}

func flagsOrAll(tcp match, f flagMatch) match {
	if f.mask == 0 {
		return tcp
	}
	return match{}.withFlags(f).settle()
}

// concat is a match on several fields together.
func (p *nftRule) concat(parts []json.RawMessage, op string, right json.RawMessage) error {
	dims, why := p.leftAll(parts)
	switch {
	case why != nil:
		p.unknown(why.what, why.instead)
		return nil
	case op == "!=":
		p.unknown("asks for what is not in a set of several fields",
			"pass what is in it by a rule before")
		return nil
	}
	for _, l := range parts {
		p.headerNotes(l)
	}
	elems, err := p.keys(right)
	if err != nil {
		return p.soften(err)
	}
	alts, err := tuples(dims, elems)
	if err != nil {
		return p.soften(err)
	}
	p.both(alts...)
	return nil
}

func (p *nftRule) leftAll(parts []json.RawMessage) (dims []dim, why *reason) {
	for _, l := range parts {
		d := p.left(l)
		switch {
		case d.why != nil:
			return nil, d.why
		case d.iface || d.state:
			return nil, &reason{"asks for an interface or a connection state together with " +
				"other fields", "write a rule for each"}
		}
		dims = append(dims, d)
	}
	return dims, nil
}

// keys is the elements of a set, named or not, or one value as a list.
func (p *nftRule) keys(right json.RawMessage) ([]json.RawMessage, error) {
	if s, ok := scalar(right); ok && strings.HasPrefix(s, "@") {
		set := p.c.table.sets[s[1:]]
		if set == nil {
			return nil, fmt.Errorf("asks for the set %s, which is not in the input", quote(s[1:]))
		}
		if len(set.elems) == 0 {
			return nil, fmt.Errorf("asks for the set %s, which is empty, and no policy has a "+
				"dynamic set of several fields", quote(set.name))
		}
		if set.leases {
			p.r.filled = append(p.r.filled, stays("entries of set "+quote(set.name)))
		}
		return set.elems, nil
	}
	if key, inner := object(right); key == "set" {
		return array(inner), nil
	}
	return []json.RawMessage{right}, nil
}

// tuple reads one element of several fields.
func tuple(dims []dim, raw json.RawMessage) ([]value, error) {
	key, inner := object(raw)
	if key == "elem" {
		var e struct{ Val json.RawMessage }
		if json.Unmarshal(inner, &e) != nil {
			return nil, errors.New("an element without a value")
		}
		key, inner = object(e.Val)
	}
	parts := array(inner)
	if key != "concat" || len(parts) != len(dims) {
		return nil, fmt.Errorf("%s is not an element of %d fields", quote(string(raw)), len(dims))
	}
	var vs []value
	for i := range dims {
		v, err := dims[i].value(parts[i], 0)
		if err != nil {
			return nil, err
		}
		if v.any {
			return nil, errors.New("has the element *")
		}
		vs = append(vs, v)
	}
	return vs, nil
}

// tuples makes a match for each group of elements that differ in their first field only.
func tuples(dims []dim, elems []json.RawMessage) ([]match, error) {
	type group struct {
		rest  match
		first value
	}
	var order []*group
	groups := map[string]*group{}
	for _, raw := range elems {
		vs, err := tuple(dims, raw)
		if err != nil {
			return nil, err
		}
		var rest match
		for i := 1; i < len(dims); i++ {
			m, err := dims[i].exactly(vs[i])
			if err != nil {
				return nil, err
			}
			rest = rest.and(&m)
		}
		key := rest.text()
		g := groups[key]
		if g == nil {
			if len(order) == maxAlternatives {
				return nil, fmt.Errorf("has a set that would become more than %d rules",
					maxAlternatives)
			}
			g = &group{rest: rest}
			groups[key] = g
			order = append(order, g)
		}
		g.first.add(vs[0])
	}
	alts := []match{}
	for _, g := range order {
		m, err := dims[0].exactly(g.first)
		if err != nil {
			return nil, err
		}
		alts = append(alts, m.and(&g.rest))
	}
	return alts, nil
}

// exactly is what holds where the field has one of the values.
func (d *dim) exactly(v value) (match, error) {
	if d.dir != "" {
		ms, err := addressMatch(d, &addrSet{addrs: joinAddrs(v.addrs)}, false)
		if err != nil {
			return match{}, err
		}
		return ms[0], nil
	}
	ms, err := fieldMatch(d, joinSpans(v.nums).and(between(0, fieldTop[d.num])), "")
	if err != nil {
		return match{}, err
	}
	return ms[0], nil
}

// vmap is a verdict map: the rule becomes one for each verdict.
func (p *nftRule) vmap(inner json.RawMessage) error {
	var m struct{ Key, Data json.RawMessage }
	if json.Unmarshal(inner, &m) != nil || len(m.Key) == 0 || len(m.Data) == 0 {
		return fmt.Errorf("%s is not a verdict map", quote(string(inner)))
	}
	parts := []json.RawMessage{m.Key}
	key, list := object(m.Key)
	if key == "concat" {
		parts = array(list)
	}
	elems, err := p.keys(m.Data)
	if err != nil {
		return p.soften(err)
	}
	groups, err := p.byVerdict(elems)
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		p.r.alts, p.r.verb = nil, doCount
		p.remark(Noticed, "the verdict map is empty, or all of it goes on: nothing is decided", "")
		return nil
	}
	p.split = []*chainRule{}
	p.finishQuiet()
	p.r.unknown = append(p.r.unknown, p.guards...)
	for i, g := range groups {
		r := *p.r
		r.unknown, r.remarks, r.states = slices.Clone(p.r.unknown), nil, slices.Clone(p.r.states)
		if i == 0 {
			r.remarks = p.r.remarks
		}
		if err := p.mapRule(&r, parts, key == "concat", g); err != nil {
			return err
		}
		p.split = append(p.split, &r)
	}
	return nil
}

func (p *nftRule) finishQuiet() {
	for _, q := range p.quiet {
		p.remark(Noticed, q.what, q.instead)
	}
}

// verdictGroup is the keys of a verdict map that have the same verdict.
type verdictGroup struct {
	key   string
	inner json.RawMessage
	keys  []json.RawMessage
}

// byVerdict sorts the elements of a verdict map by their verdicts, in order of appearance.
func (p *nftRule) byVerdict(elems []json.RawMessage) (groups []*verdictGroup, err error) {
	index := map[string]*verdictGroup{}
	for _, e := range elems {
		pair := array(e)
		if len(pair) != 2 {
			return nil, fmt.Errorf("%s is not an element of a verdict map", quote(string(e)))
		}
		key, inner := object(pair[1])
		switch key {
		case "continue": // goes on, as without it
			continue
		case "accept", "drop", "return", "jump", "goto", "queue":
		default:
			return nil, fmt.Errorf("%s is not a verdict", quote(string(pair[1])))
		}
		id := string(pair[1])
		if index[id] == nil {
			index[id] = &verdictGroup{key: key, inner: inner}
			groups = append(groups, index[id])
		}
		index[id].keys = append(index[id].keys, pair[0])
	}
	return groups, nil
}

// mapRule narrows r to the keys of a group and gives it the verdict.
func (p *nftRule) mapRule(r *chainRule, parts []json.RawMessage, several bool,
	g *verdictGroup) error {
	if err := p.verdict(r, g.key, g.inner); err != nil {
		return err
	}
	dims, why := []dim{p.left(parts[0])}, (*reason)(nil)
	if several {
		dims, why = p.leftAll(parts)
	} else if dims[0].why != nil {
		why = dims[0].why
	}
	if why != nil {
		r.unknown = append(r.unknown, *why)
		return nil
	}
	alts, err := p.mapAlts(r, dims, several, g.keys)
	if err == nil && alts != nil {
		r.alts, err = narrow(r.alts, alts, &p.n.out.written)
	}
	if err != nil {
		r.unknown = append(r.unknown, reason{printable(err.Error(), 200), ""})
	}
	r.checkFragment()
	return nil
}

func (p *nftRule) mapAlts(r *chainRule, dims []dim, several bool, keys []json.RawMessage) ([]match,
	error) {
	if several {
		return tuples(dims, keys)
	}
	var v value
	for _, k := range keys {
		one, err := dims[0].value(k, 0)
		if err != nil {
			return nil, err
		}
		v.add(one)
	}
	if v.any {
		return nil, errors.New("has the element * for what is not in the map")
	}
	return p.compareValue(r, &dims[0], "==", v)
}
