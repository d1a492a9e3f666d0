package ir

import (
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// protocol numbers of the transports, by Transport; Other has none.
var protocol = [NumTransports]uint64{TCP: 6, UDP: 17, UDPLite: 136, SCTP: 132, DCCP: 33}

// protoOf returns the protocol of a class whose transport is known.
func protoOf(c Class) uint64 {
	if c.Transport != ICMP {
		return protocol[c.Transport]
	}
	if c.Family == IPv4 {
		return 1
	}
	return 58
}

// Proto returns the protocol of a class whose transport is known, 0 of the others.
func (c Class) Proto() uint8 {
	if c.Transport == Other {
		return 0
	}
	return uint8(protoOf(c))
}

func hasPorts(c Class) bool { return c.Transport >= TCP && c.Transport <= DCCP }

func one(v uint64) []field.Range       { return []field.Range{{Lo: v, Hi: v}} }
func span(lo, hi uint64) []field.Range { return []field.Range{{Lo: lo, Hi: hi}} }

// outcome of asking a term about a class.
type outcome uint8

const (
	never outcome = iota
	always
	depends
)

// term reduces a term, number i of the match, to what has to be asked of a packet of class c; that
// of endpoints may take more than one question.
func (a *across) term(i int, c Class, q *questions) {
	t := &a.match[i]
	q.n = 0
	var cond Cond
	switch compares[t.Field] {
	case field.ByPair:
		if isEndpoint(t.Field) {
			a.endpoint(t, c, q)
			return
		}
		q.outcome, cond = a.work.service(t, c)
	case field.ByPrefix:
		if q.outcome, cond = specialiseAddr(t, c); q.outcome == depends && !cond.Dynamic() {
			cond.List = a.listOf(i, c.Family)
		}
	case field.ByMask:
		q.outcome, cond = specialiseFlags(t, c)
	case field.ByRange:
		ranges := t.Ranges
		if t.Set != nil {
			ranges = t.Set.Ports
		}
		q.outcome, cond = numeric(t.Field, ranges, t.Not, c)
	case field.ByBytes:
		q.outcome, cond = never, Cond{}
		if presentIn[t.Field][c.Index()] {
			q.outcome, cond = depends, Cond{Field: t.Field, Not: t.Not, Bytes: t.Bytes}
		}
	case field.ByPattern:
		q.outcome, cond = never, Cond{}
		switch {
		case !presentIn[t.Field][c.Index()]:
		case t.Field == field.Stream && c.Fragment: // whose bytes are not all there
			if t.Unknown {
				q.outcome = always
			}
		default:
			q.outcome, cond = depends, Cond{Field: t.Field, Not: t.Not, Pattern: t.Pattern,
				Unknown: t.Unknown}
		}
	case field.ByInner:
		q.outcome, cond = never, Cond{}
		if presentIn[t.Field][c.Index()] {
			q.outcome, cond = depends, Cond{Field: t.Field, Not: t.Not, Inner: t.Inner}
		}
	case field.ByName, field.ByMessage:
		q.outcome, cond = never, Cond{}
		if presentIn[t.Field][c.Index()] {
			q.outcome, cond = depends, Cond{Field: t.Field, Not: t.Not, Names: t.Names,
				Ranges: t.Ranges}
		}
	default: // of which nothing is known but that it has to be asked
		q.outcome, cond = depends, Cond{
			Field: t.Field, Not: t.Not, Set: t.Set, Mask: t.Mask, Value: t.Value, Ranges: t.Ranges,
			Prefixes: t.Prefixes,
		}
	}
	if q.outcome == depends {
		q.ask(cond)
	}
}

func specialiseAddr(t *policy.Term, c Class) (outcome, Cond) {
	if !presentIn[t.Field][c.Index()] {
		return never, Cond{}
	}
	cond := Cond{Field: t.Field, Not: t.Not, Set: t.Set}
	if cond.Dynamic() {
		return depends, cond
	}
	cond.Prefixes = ofFamily(t.Addresses(), c.Family)
	switch {
	case len(cond.Prefixes) == 0:
		return holds(t.Not), Cond{}
	case cond.Prefixes[0].Bits() == 0:
		return holds(!t.Not), Cond{}
	}
	return depends, cond
}

func holds(b bool) outcome {
	if b {
		return always
	}
	return never
}

func specialiseFlags(t *policy.Term, c Class) (outcome, Cond) {
	switch {
	case !presentIn[t.Field][c.Index()]:
		return never, Cond{}
	case t.Value&^t.Mask != 0:
		return holds(t.Not), Cond{}
	case t.Mask == 0:
		return holds(!t.Not), Cond{}
	}
	return depends, Cond{Field: t.Field, Not: t.Not, Mask: t.Mask, Value: t.Value}
}

// service reduces a term on services to the ports of the class's protocol.
func (w *work) service(t *policy.Term, c Class) (outcome, Cond) {
	switch {
	case !hasPorts(c):
		return never, Cond{}
	case t.Set != nil && t.Set.Kind == policy.Dynamic:
		return depends, dynamicService(t, c)
	}
	out := w.merged[:0]
	for _, s := range t.Services() {
		if uint64(s.Proto) == protoOf(c) {
			out = append(out, field.Range{Lo: uint64(s.Lo), Hi: uint64(s.Hi)})
		}
	}
	w.merged = out
	return numeric(t.Field.Info().Port, w.ranges.Keep(field.Join(out)), t.Not, c)
}

// numeric reduces a question for numbers. What it gives may share the memory of the ranges.
func numeric(f field.Field, ranges []field.Range, not bool, c Class) (outcome, Cond) {
	dom := domains[f][c.Index()]
	if dom == nil {
		return never, Cond{}
	}
	r := ranges
	if steps := 0; !within(ranges, dom, &steps) {
		r = field.Intersect(dom, ranges)
	}
	if not {
		r = field.Subtract(dom, r)
	}
	switch {
	case len(r) == 0:
		return never, Cond{}
	case sameRanges(r, dom) && f.Info().Absent == 0:
		return always, Cond{}
	}
	return depends, Cond{Field: f, Ranges: r}
}

// specialise reduces the match to its conditions in class c, in scratch memory; false if it cannot
// match there.
func (a *across) specialise(c Class) ([]Cond, bool) {
	all, excluding := a.work.asked[:0], 0
	var q questions
	for i := range a.match {
		a.term(i, c, &q)
		if q.outcome == never {
			return nil, false
		}
		for k := range q.conds[:q.n] {
			var possible bool
			if all, possible = narrow(all, &q.conds[k]); !possible {
				return nil, false
			}
			if q.conds[k].excludes() {
				excluding++
			}
		}
	}
	a.work.asked = all
	if a.work.leaves && !mayAnswer(all) {
		return nil, false
	}
	if excluding > 1 {
		return a.joinExcluded(all)
	}
	return all, true
}

// narrow adds a condition, to one on the same number if there is one; false if none can hold then.
func narrow(all []Cond, cond *Cond) ([]Cond, bool) {
	if cond.Ranges != nil && lawsOf[cond.Field].Join {
		for j := range all {
			if all[j].Field == cond.Field {
				all[j].Ranges = field.Intersect(all[j].Ranges, cond.Ranges)
				return all, len(all[j].Ranges) > 0
			}
		}
	}
	return append(all, *cond), true
}

// excludes tells whether a condition excludes addresses that stand in the rule.
func (c *Cond) excludes() bool { return c.Not && c.Set == nil && c.Prefixes != nil }

// joinExcluded makes one question of those that exclude addresses of one side, one after the other:
// `not from A not from B` is `not from { A, B }`. It is false if they exclude all.
func (a *across) joinExcluded(all []Cond) ([]Cond, bool) {
	for _, side := range []field.Field{field.SrcAddr, field.DstAddr} {
		together := a.work.gathered[:0]
		out, first := all[:0], -1
		for _, q := range all {
			if q.Field != side || !q.excludes() {
				out = append(out, q)
				continue
			}
			together = append(together, q.Prefixes...)
			if first < 0 {
				first = len(out)
				out = append(out, q)
			}
		}
		a.work.gathered = together
		if len(out) < len(all) {
			out[first].Prefixes, out[first].List = a.lists.prefixes.keep(a.work, &a.work.prefixes,
				literal.MergePrefixes(together))
			if out[first].Prefixes[0].Bits() == 0 {
				return nil, false
			}
		}
		all = out
	}
	return all, true
}
