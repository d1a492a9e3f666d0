package nft

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"sync"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// iface is a match on the incoming interface: a policy protects one.
func (p *nftRule) iface(r *importer.ChainRule, names []string, not bool) ([]match.Match, error) {
	dev, onlyLo := p.n.opts.Device, len(names) > 0
	for _, n := range names {
		onlyLo = onlyLo && n == "lo"
	}
	list := importer.Printable(strings.Join(names, ", "), 60)
	switch {
	case onlyLo && !not && dev != "lo":
		r.AboutLoopback()
		return never, nil
	case dev == "" && !onlyLo:
		r.Unknown = append(r.Unknown,
			importer.Reason{What: "asks for interface " + match.Quote(list) +
				", and a policy protects one interface", Instead: "choose one with --dev"})
		return nil, nil
	}
	alts := importer.Came(names, "*", dev, p.n.vlans, not)
	if len(alts) == 0 {
		p.elsewhere(r, names)
		return never, nil
	}
	p.vlanRemarks(r, names)
	return alts, nil
}

// vlanRemarks says of each name of a VLAN of the policy's interface that it is taken for one.
func (p *nftRule) vlanRemarks(r *importer.ChainRule, names []string) {
	for _, n := range names {
		if importer.VlanOf(n, p.n.opts.Device) != nil {
			r.Remarks = append(r.Remarks, r.Remark(importer.Changed,
				importer.VlanRemark(n, p.n.opts.Device), ""))
		}
	}
}

// state is a match on the state of the connection.
func (p *nftRule) state(r *importer.ChainRule, states []string, not bool) {
	upper := []string{}
	for _, s := range states {
		upper = append(upper, strings.ToUpper(s))
	}
	if not {
		upper = importer.Negated(upper)
	}
	if r.States != nil {
		upper = slices.DeleteFunc(upper,
			func(s string) bool { return !slices.Contains(r.States, s) })
	}
	r.States = upper
}

// direction is `ct direction`, of a rule about UDP or ICMP: what the other side begins is original.
// A connection of TCP is established whichever side has begun it.
func (p *nftRule) direction(l json.RawMessage, op string, right json.RawMessage) []match.Match {
	key, inner := object(l)
	var c struct{ Key string }
	s, _ := scalar(right)
	if key != "ct" || json.Unmarshal(inner, &c) != nil || c.Key != "direction" || op != "==" ||
		slices.ContainsFunc(p.Rule.Alts, func(m match.Match) bool {
			return m.Fields[match.Proto] == nil || !m.Fields[match.Proto].Within(match.NoTracked) ||
				len(m.Fields[match.Proto].And(match.Just(6))) > 0
		}) {
		return nil
	}
	switch s {
	case "original":
		return importer.Settled([]match.Match{match.UdpOnly.With(match.Known, match.Just(0)),
			match.Match{}.With(match.ICMP, match.Requests),
			match.Match{}.With(match.ICMP6, importer.Requests6)})
	case "reply":
		return importer.Settled([]match.Match{match.Match{}.With(match.Known,
			match.Just(1)).With(match.Proto, match.Just(6).Not(255))})
	}
	return nil
}

// fragment is a match on `ip frag-off & MASK`.
func (p *nftRule) fragment(mask uint64, op string, right json.RawMessage) error {
	s, ok := scalar(right)
	zero := op == "==" && s == "0"
	in := match.Spans(nil)
	switch {
	case !ok || !zero && !(op == "!=" && s == "0"):
	case mask == 0x1fff && zero:
		in = match.Between(match.Whole, match.First)
	case mask == 0x1fff:
		in = match.Just(match.Later)
	case mask == 0x3fff && zero:
		in = match.Just(match.Whole)
	case mask == 0x3fff:
		in = match.Between(match.First, match.Later)
	}
	if in == nil {
		p.Unknown("asks for bits of the fragment offset", "write `fragments` or `not fragments`")
		return nil
	}
	p.Both(match.Match{}.With(match.Ether, match.Only4).With(match.Fragment, in).Settle())
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
		if n, err := match.ParseSpansOf(s, ":", 255); err == nil {
			return uint8(n[0].Lo), nil
		}
		return match.ParseFlags(s)
	}
	list := array(raw)
	if key, inner := object(raw); key == "|" {
		list = array(inner)
	}
	if list == nil || depth > maxNested {
		return 0, fmt.Errorf("%s are not TCP flags", match.Quote(string(raw)))
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
	tcp := match.Match{}.With(match.Proto, match.Just(6)).With(match.Port,
		match.AllPorts).Settle() // a TCP header is there
	alts, all := []match.Match{}, match.Match{}
	for _, raw := range values {
		v, err := flagValue(raw, 0)
		if err != nil {
			return p.soften(err)
		}
		f := match.Flags{Mask: mask, Value: v}
		any := match.Flags{Mask: v, Value: 0} // none of v is set
		switch {
		case op == "in" && v != 0:
			alts = append(alts, match.Match{}.WithoutFlags(any).Settle())
		case op == "!" && v != 0:
			all = all.WithFlags(any).Settle()
		case op == "==" && v&^mask == 0:
			alts = append(alts, flagsOrAll(tcp, f))
		case op == "==": // cannot hold
		case op == "!=" && v&^mask == 0 && mask != 0:
			all = all.WithoutFlags(f).Settle()
		case op == "!=" && mask == 0 && v == 0:
			all = never[0]
		case op == "!=":
		case op == "<", op == "<=", op == ">", op == ">=":
			in := importer.Ordered(op, match.Just(uint64(v)), 0xff)
			alts = append(alts, orderedFlags(tcp, mask, in)...)
		default:
			return p.soften(fmt.Errorf("compares TCP flags with %s", match.Quote(op)))
		}
	}
	if op == "!=" || op == "!" {
		if !all.HasTransport() && !all.Never {
			all = tcp
		}
		alts = []match.Match{all}
	}
	p.Both(alts...)
	return nil
}

// orderedFlags returns matches for TCP flags: those whose bits under mask, as a number, lie in in.
// There is one match for each block of numbers that differ in low bits only.
func orderedFlags(tcp match.Match, mask uint8, in match.Spans) []match.Match {
	has := func(v uint8) bool { return len(in.And(match.Just(uint64(v)))) > 0 }
	alts := []match.Match{}
	var split func(fixed, v uint8)
	split = func(fixed, v uint8) {
		all, none := true, true
		for x := range 256 {
			if x := uint8(x); x&^mask == 0 && x&fixed == v {
				all, none = all && has(x), none && !has(x)
			}
		}
		switch {
		case none:
		case all:
			alts = append(alts, flagsOrAll(tcp, match.Flags{Mask: fixed, Value: v}))
		default:
			top := uint8(1) << (bits.Len8(mask&^fixed) - 1)
			split(fixed|top, v)
			split(fixed|top, v|top)
		}
	}
	split(0, 0)
	return alts
}

func flagsOrAll(tcp match.Match, f match.Flags) match.Match {
	if f.Mask == 0 {
		return tcp
	}
	return match.Match{}.WithFlags(f).Settle()
}

// concat is a match on several fields together.
func (p *nftRule) concat(parts []json.RawMessage, op string, right json.RawMessage) error {
	dims, why := p.leftAll(parts)
	if why != nil {
		p.Unknown(why.What, why.Instead)
		return nil
	}
	if op == "!=" && !slices.ContainsFunc(dims, func(d dim) bool { return d.iface }) {
		p.Unknown(notInSeveral, notInHint)
		return nil
	}
	for _, l := range parts {
		p.headerNotes(l)
	}
	elems, err := p.keys(right)
	if err != nil {
		return p.soften(err)
	}
	alts, err := p.tuples(p.Rule, dims, elems, op == "!=")
	if err != nil {
		return p.soften(err)
	}
	if alts != nil {
		p.Both(alts...)
	}
	return nil
}

const (
	notInSeveral = "asks for what is not in a set of several fields"
	notInHint    = "pass what is in it by a rule before"
)

// tuples are the alternatives of a rule about elements of several fields, or about all others; nil
// without an error when what is asked is remembered as unknown.
func (p *nftRule) tuples(r *importer.ChainRule, dims []dim, elems []json.RawMessage,
	not bool) ([]match.Match, error) {
	var rows [][]value
	for _, raw := range elems {
		row, err := tuple(dims, raw)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	var names []string
	for i := slices.IndexFunc(dims, isIface); i >= 0; i = slices.IndexFunc(dims, isIface) {
		kept, asked, why := p.here(i, rows)
		if why != nil {
			r.Unknown = append(r.Unknown, *why)
			return nil, nil
		}
		p.vlanRemarks(r, asked)
		names = append(names, asked...)
		// the VLANs stand behind the other fields: no value of them is joined with another
		dims, rows = append(slices.Delete(slices.Clone(dims), i, i+1),
			dim{num: match.VLAN, came: true}), kept
		last := len(dims) - 1
		if !slices.ContainsFunc(rows, func(row []value) bool { return row[last].nums != nil }) {
			dims = dims[:last]
			for n := range rows {
				rows[n] = rows[n][:last]
			}
		}
	}
	there := match.Match{} // the headers that the other fields are in
	for _, d := range dims {
		there = there.And(&d.dep)
	}
	switch {
	case len(rows) == 0 && not, len(rows) > 0 && len(dims) == 0 && !not:
		return []match.Match{there.Settle()}, nil
	case len(rows) > 0 && len(dims) == 0, len(rows) == 0:
		p.elsewhere(r, names)
		return never, nil
	case not && len(dims) > 1:
		r.Unknown = append(r.Unknown, importer.Reason{What: notInSeveral, Instead: notInHint})
		return nil, nil
	case not:
		var v value
		for _, row := range rows {
			v.add(row[0])
		}
		return p.compareValue(r, &dims[0], "!=", v)
	}
	return joined(dims, rows)
}

func isIface(d dim) bool { return d.iface }

// here leaves those rows of a set whose field i is the policy's interface or a VLAN of it, and
// gives the names of the interfaces in all of them. In the place of the field the rows have the
// VLANs at their end, or none for all frames.
func (p *nftRule) here(i int, rows [][]value) (kept [][]value, names []string,
	why *importer.Reason) {
	dev := p.n.opts.Device
	for _, row := range rows {
		for _, n := range row[i].text {
			if names = append(names, n); dev == "" && n != "lo" {
				return nil, nil, &importer.Reason{What: "asks for interface " + match.Quote(n) +
					", and a policy protects one interface", Instead: "choose one with --dev"}
			}
			for _, m := range importer.Came([]string{n}, "*", dev, p.n.vlans, false) {
				kept = append(kept, append(slices.Delete(slices.Clone(row), i, i+1),
					value{nums: m.Fields[match.VLAN]}))
			}
		}
	}
	return kept, names, nil
}

// virtual are names of interfaces that are no card's.
var virtual = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(lo$|tun|tap|wg|tailscale|zt|ppp|docker|veth|virbr|vnet|br-|cali|` +
		`cni|flannel|lxc|lxd|ve-)`)
})

// elsewhere says that a rule is about other interfaces than the policy's.
func (p *nftRule) elsewhere(r *importer.ChainRule, names []string) {
	if p.n.opts.Device != "lo" &&
		!slices.ContainsFunc(names, func(n string) bool { return n != "lo" }) {
		r.AboutLoopback()
		return
	}
	r.Absent = true
	p.n.others = p.n.others || slices.ContainsFunc(names, func(n string) bool {
		return !virtual().MatchString(n)
	})
	r.Remarks = append(r.Remarks, r.Remark(importer.LeftOut, "is about interface "+
		match.Quote(importer.Printable(strings.Join(names, ", "), 60))+
		", by which nothing comes to "+match.Quote(p.n.opts.Device), ""))
}

func (p *nftRule) leftAll(parts []json.RawMessage) (dims []dim, why *importer.Reason) {
	for _, l := range parts {
		d := p.left(l)
		switch {
		case d.why != nil:
			return nil, d.why
		case d.state:
			return nil, &importer.Reason{What: "asks for a connection state together with other " +
				"fields", Instead: "write a rule for each"}
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
			return nil, fmt.Errorf("asks for the set %s, which is not in the input",
				match.Quote(s[1:]))
		}
		if len(set.elems) == 0 {
			return nil, fmt.Errorf("asks for the set %s, which is empty, and no policy has a "+
				"dynamic set of several fields", match.Quote(set.name))
		}
		if set.leases {
			p.Rule.Filled = append(p.Rule.Filled,
				importer.Stays("entries of set "+match.Quote(set.name)))
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
		return nil, fmt.Errorf("%s is not an element of %d fields", match.Quote(string(raw)),
			len(dims))
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

// joined makes a match for each group of elements that differ in their first field only.
func joined(dims []dim, rows [][]value) ([]match.Match, error) {
	type group struct {
		rest  match.Match
		first value
	}
	var order []*group
	groups := map[string]*group{}
	for _, vs := range rows {
		var rest match.Match
		for i := 1; i < len(dims); i++ {
			m, err := dims[i].exactly(vs[i])
			if err != nil {
				return nil, err
			}
			rest = rest.And(&m)
		}
		key := rest.Text()
		g := groups[key]
		if g == nil {
			if len(order) == importer.MaxAlternatives {
				return nil, fmt.Errorf("has a set that would become more than %d rules",
					importer.MaxAlternatives)
			}
			g = &group{rest: rest}
			groups[key] = g
			order = append(order, g)
		}
		g.first.add(vs[0])
	}
	alts := []match.Match{}
	for _, g := range order {
		m, err := dims[0].exactly(g.first)
		if err != nil {
			return nil, err
		}
		alts = append(alts, m.And(&g.rest))
	}
	return oneOf(dims, alts), nil
}

// oneOf is alternatives that are all about the type and code of ICMP as one.
func oneOf(dims []dim, alts []match.Match) []match.Match {
	f := dims[0].num
	if len(alts) == 0 || f != match.ICMP && f != match.ICMP6 ||
		slices.ContainsFunc(dims, func(d dim) bool { return d.num != f || d.dir != "" }) {
		return alts
	}
	var all match.Spans
	for i := range alts {
		all = append(all, alts[i].Fields[f]...)
	}
	return []match.Match{match.Match{}.With(f, match.JoinSpans(all)).Settle()}
}

// exactly returns a match of the values of the field.
func (d *dim) exactly(v value) (match.Match, error) {
	if d.dir != "" {
		ms, err := addressMatch(d, &match.Set{Addresses: match.JoinAddrs(v.addrs)}, false)
		if err != nil {
			return match.Match{}, err
		}
		return ms[0], nil
	}
	if d.came && v.nums == nil {
		return match.Match{}, nil
	}
	if d.came {
		return match.Match{}.With(match.VLAN, v.nums), nil
	}
	ms, err := fieldMatch(d, match.JoinSpans(v.nums).And(match.Between(0, match.Top[d.num])), "")
	if err != nil {
		return match.Match{}, err
	}
	return ms[0], nil
}

// vmap is a verdict map: the rule becomes one for each verdict.
func (p *nftRule) vmap(inner json.RawMessage) error {
	var m struct{ Key, Data json.RawMessage }
	if json.Unmarshal(inner, &m) != nil || len(m.Key) == 0 || len(m.Data) == 0 {
		return fmt.Errorf("%s is not a verdict map", match.Quote(string(inner)))
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
		p.Rule.Alts, p.Rule.Verb = nil, importer.DoCount
		p.Remark(importer.Noticed,
			"the verdict map is empty, or all of it goes on: nothing is decided", "")
		return nil
	}
	p.split = []*importer.ChainRule{}
	p.finishQuiet()
	p.Rule.Unknown = append(p.Rule.Unknown, p.guards...)
	for i, g := range groups {
		r := *p.Rule
		r.Unknown, r.Remarks, r.States = slices.Clone(p.Rule.Unknown), nil,
			slices.Clone(p.Rule.States)
		if i == 0 {
			r.Remarks = p.Rule.Remarks
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
		p.Remark(importer.Noticed, q.What, q.Instead)
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
			return nil, fmt.Errorf("%s is not an element of a verdict map", match.Quote(string(e)))
		}
		key, inner := object(pair[1])
		switch key {
		case "continue": // goes on, as without it
			continue
		case "accept", "drop", "return", "jump", "goto", "queue":
		default:
			return nil, fmt.Errorf("%s is not a verdict", match.Quote(string(pair[1])))
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
func (p *nftRule) mapRule(r *importer.ChainRule, parts []json.RawMessage, several bool,
	g *verdictGroup) error {
	if err := p.verdict(r, g.key, g.inner); err != nil {
		return err
	}
	dims, why := []dim{p.left(parts[0])}, (*importer.Reason)(nil)
	if several {
		dims, why = p.leftAll(parts)
	} else if dims[0].why != nil {
		why = dims[0].why
	}
	if why != nil {
		r.Unknown = append(r.Unknown, *why)
		return nil
	}
	alts, err := p.mapAlts(r, dims, several, g.keys)
	if err == nil && alts != nil {
		r.Alts, err = importer.Narrow(r.Alts, alts, &p.n.out.Written)
	}
	if err != nil {
		r.Unknown = append(r.Unknown, importer.Reason{What: importer.Printable(err.Error(), 200),
			Instead: ""})
	}
	r.CheckFragment()
	return nil
}

func (p *nftRule) mapAlts(r *importer.ChainRule, dims []dim, several bool,
	keys []json.RawMessage) ([]match.Match,
	error) {
	if several {
		return p.tuples(r, dims, keys, false)
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
