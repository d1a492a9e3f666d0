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
		p.elsewhere(r, names, false)
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
