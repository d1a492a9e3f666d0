package plan

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/filter/stream"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Search is a search of payloads or streams that rules ask for. It is two functions and a table,
// whatever the number of rules and chains.
type Search struct {
	*policy.Pattern
	Table *Table
	// ID names what a search of streams looks for, 0 of payloads: searches of policies before and
	// after that look for the same know the same of a stream.
	ID uint32
}

// findSearches lists the searches that packets may reach.
func (p *planner) findSearches() {
	known := map[*policy.Pattern]bool{}
	note := func(q *policy.Pattern) {
		if q == nil || known[q] {
			return
		}
		known[q] = true
		m := q.Machine
		what := "payload contains "
		if q.Within > 0 {
			what = "stream contains "
		}
		p.Searches = append(p.Searches, &Search{q, &Table{
			For:  what + q.Text,
			Kind: fmt.Sprintf("automaton of %d states", m.States),
			Why:  fmt.Sprintf("one load a byte; %d bytes a state", m.Stride()), Bytes: len(m.Table),
			States: m.Table,
		}, p.searchID(q)})
	}
	for _, rules := range p.Program.Lists {
		for i := range rules {
			for k := range rules[i].Conds {
				note(rules[i].Conds[k].Pattern)
			}
		}
	}
	for _, l := range p.Program.Inners {
		for i := range l.Rules {
			for k := range l.Rules[i].Conds {
				note(l.Rules[i].Conds[k].Pattern)
			}
		}
	}
}

// ofShadow is a bit of the searches of a shadow, which come as far as its own rules have them.
const ofShadow = 1 << 31

// searchID returns a digest of all that a search of streams depends on. Of two searches with the
// same digest the later takes the next number.
func (p *planner) searchID(q *policy.Pattern) uint32 {
	if q.Within == 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write(binary.LittleEndian.AppendUint32(q.Machine.Table, q.Machine.Start))
	h.Write(binary.LittleEndian.AppendUint32(nil, uint32(q.Within)))
	sum := h.Sum64()
	id := uint32(sum^sum>>32) &^ ofShadow
	if p.Target.IsShadow() {
		id |= ofShadow
	}
	for id&^ofShadow == 0 || slices.ContainsFunc(p.Searches, func(s *Search) bool {
		return s.ID == id
	}) {
		id++
	}
	return id
}

// SearchOf returns the number of a search.
func (p *Plan) SearchOf(q *policy.Pattern) int {
	for i, s := range p.Searches {
		if s.Pattern == q {
			return i
		}
	}
	panic("a search of payloads that no rule asks for")
}

// asksStreams reports whether rules search streams.
func asksStreams(rules []ir.Rule) bool {
	return slices.ContainsFunc(rules, func(r ir.Rule) bool { return searchesStream(&r) })
}

func searchesStream(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Conds, func(c ir.Cond) bool { return c.Field == field.Stream })
}

// streamPorts returns the ports of services whose streams rules search, nil if none does.
func (p *planner) streamPorts() (all []stream.Ports) {
	for _, rules := range p.Program.Lists {
		for i := range rules {
			if !searchesStream(&rules[i]) {
				continue
			}
			of := []field.Range{{Lo: 0, Hi: 65535}}
			for _, c := range rules[i].Conds {
				if c.Field == field.DstPort && !c.Not && c.Set == nil && len(c.Ranges) > 0 {
					of = c.Ranges
				}
			}
			for _, r := range of {
				all = append(all, stream.Ports{Lo: uint16(r.Lo), Hi: uint16(r.Hi)})
			}
		}
	}
	return all
}
