package region

import (
	"slices"

	"levee/internal/lang/field"
	"levee/internal/lang/pattern"
	"levee/internal/lang/policy"
)

// Bounds of what is compared: the states of searches that are followed together, and the searches
// that rules ask for.
const (
	maxSearched = 1 << 12
	maxSearches = 12
)

// searched are searches of a payload, each with whether it has to find something.
type searched struct {
	machines []*pattern.Machine
	find     []bool
}

// example returns a shortest payload in which each search finds something, or finds nothing; false
// if there is none. It begins with some bytes, of which those that are free may be others. known is
// false if there were too many states to say.
func (of *searched) example(begin []byte, free func(at int) bool) (out []byte, found, known bool) {
	type state struct {
		at     int // how many of the first bytes are behind it
		states [4]uint32
	}
	type step struct {
		from state
		by   byte
	}
	var first state
	if len(of.machines) > len(first.states) {
		return nil, false, false
	}
	for i, m := range of.machines {
		first.states[i] = m.Start
	}
	each := of.bytes()
	came := map[state]step{first: {}}
	for queue := []state{first}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at.at == len(begin) && of.ends(at.states[:]) {
			for ; at != first; at = came[at].from {
				out = append(out, came[at].by)
			}
			slices.Reverse(out)
			return out, true, true
		}
		try := each
		if at.at < len(begin) {
			try = begin[at.at : at.at+1 : at.at+1]
			if free(at.at) {
				try = append(try, each...)
			}
		}
		for _, c := range try {
			next := state{at: min(at.at+1, len(begin))}
			for i, m := range of.machines {
				next.states[i] = m.Run(at.states[i], []byte{c})
			}
			if _, ok := came[next]; ok {
				continue
			}
			if len(came) == maxSearched {
				return nil, false, false
			}
			came[next] = step{at, c}
			queue = append(queue, next)
		}
	}
	return nil, false, true
}

// bytes are one of each kind of bytes that the searches tell apart.
func (of *searched) bytes() (out []byte) {
	known := map[string]bool{}
	for c := range 256 {
		var kind []byte
		for _, m := range of.machines {
			kind = append(kind, m.Table[c])
		}
		if !known[string(kind)] {
			known[string(kind)] = true
			out = append(out, byte(c))
		}
	}
	return out
}

// ends says whether a payload that ends in these states is as it has to be.
func (of *searched) ends(states []uint32) bool {
	for i, m := range of.machines {
		if m.Found(states[i]) != of.find[i] {
			return false
		}
	}
	return true
}

// contents notes which combinations of sides no payload has: a text in a payload that is too short
// for it, and results of searches that contradict each other.
func (s *space) contents() {
	var all []int
	for i := range s.sides {
		if c := s.sides[i].cond; c != nil && c.Pattern != nil {
			all = append(all, i)
		}
	}
	if len(all) > maxSearches {
		return // pairs of them would take too long
	}
	for _, a := range all {
		machine := s.sides[a].cond.Pattern.Machine
		s.least(want{a, single(1)}, len(machine.Example()))
		for _, r := range s.exact {
			if alwaysFound(machine, r.bytes) {
				s.impossible = append(s.impossible, s.without(a, r))
			}
		}
		for _, b := range all {
			for value, find := range []bool{false, true} {
				if a == b || find && a > b {
					continue
				}
				of := searched{[]*pattern.Machine{machine, s.sides[b].cond.Pattern.Machine},
					[]bool{true, find}}
				if _, found, known := of.example(nil, nil); known && !found {
					s.impossible = append(s.impossible, &rule{wants: []want{
						{a, single(1)}, {b, single(uint64(value))}}})
				}
			}
		}
	}
}

// run is bytes of a payload at an offset.
type run struct {
	at    int
	bytes []byte
}

// runs returns the bytes that are asked for as a whole, as far as they lie one behind the other.
func runs(b *policy.Bytes) (out []run) {
	for i, mask := range b.Mask {
		switch {
		case mask != 0xff:
		case i > 0 && b.Mask[i-1] == 0xff:
			last := &out[len(out)-1]
			last.bytes = append(last.bytes, b.Value[i])
		default:
			out = append(out, run{b.At + i, []byte{b.Value[i]}})
		}
	}
	return out
}

// alwaysFound says whether a search finds something wherever these bytes stand.
func alwaysFound(m *pattern.Machine, bytes []byte) bool {
	states := map[uint32]bool{}
	for i := range uint32(m.States) {
		states[m.Accept+i*m.Stride()] = true
	}
	delete(states, m.Dead)
	for _, c := range bytes {
		next := map[uint32]bool{}
		for at := range states {
			next[m.Run(at, []byte{c})] = true
		}
		states = next
	}
	return len(states) == 1 && states[m.Accept]
}

// without returns the packets with bytes in which a search would find something, and finds nothing.
func (s *space) without(search int, r run) *rule {
	out := &rule{wants: []want{{search, single(0)}}}
	for i, b := range r.bytes {
		out.wants = append(out.wants,
			want{s.side(side{about: ofByte, at: r.at + i}), single(uint64(b))})
	}
	return out
}

// searches returns the searches of which the box says whether they find something.
func (p *point) searches() (of searched) {
	for i := range p.sides {
		c := p.sides[i].cond
		if c == nil || c.Pattern == nil || i >= len(p.box) || p.box[i] == nil {
			continue
		}
		of.machines = append(of.machines, c.Pattern.Machine)
		of.find = append(of.find, p.box[i][0].Lo == 1)
	}
	return of
}

// searchedFor returns the payload with what the box has rules search for. Bytes that are free may
// change for it.
func (p *point) searchedFor(b []byte, free func(at int) bool) []byte {
	of := p.searches()
	if len(of.machines) == 0 {
		return b
	}
	if out, found, _ := of.example(b, free); found {
		return out
	}
	if out, found, _ := of.example(nil, nil); found {
		return out
	}
	return b
}

// maxPayload bounds the payload of an example.
const maxPayload = 1 << 11

// filled returns the payload at a length, with bytes behind it that change nothing of what searches
// find, where there are such: the zeros that packets have there else may be what one searches for.
func (p *point) filled(b []byte, length int) []byte {
	of := p.searches()
	if len(of.machines) == 0 || length > maxPayload {
		return b
	}
	states := make([]uint32, len(of.machines))
	for i, m := range of.machines {
		states[i] = m.Run(m.Start, b)
	}
	next := make([]uint32, len(states))
	for len(b) < length {
		fits := false
		for c := 0; c < 256 && !fits; c++ {
			for i, m := range of.machines {
				next[i] = m.Run(states[i], []byte{byte(c)})
			}
			if fits = of.ends(next); fits {
				b = append(b, byte(c))
				copy(states, next)
			}
		}
		if !fits {
			return b
		}
	}
	return b
}

// least notes that no packet is as wanted whose payload has fewer bytes than that takes.
func (s *space) least(w want, bytes int) {
	if bytes == 0 {
		return
	}
	none := func(more want) {
		s.impossible = append(s.impossible, &rule{wants: []want{w, more}})
	}
	if length, ok := s.index[sideKey{about: ofNumber, field: field.Len}]; ok {
		none(want{length, []field.Range{{Hi: s.minLen() + uint64(bytes) - 1}}})
	}
	for i := range s.sides {
		if s.sides[i].about == ofByte && s.sides[i].at < bytes {
			none(want{i, single(noByte)})
		}
	}
}
