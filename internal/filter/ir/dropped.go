package ir

import (
	"net/netip"
	"slices"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Traffic is well-formed packets of one class, of which some fields are known. The others may have
// any value.
type Traffic struct {
	Class    Class
	Src, Dst netip.Addr // of IP packets
	Tags     []uint16   // VLAN ids, outermost first; two at most
	// Known are the values of other fields. Those of TCPFlags are all eight flags as a number.
	Known map[field.Field][]field.Range
	// Has says whether a dynamic set holds an element: an address, a service or an endpoint, by the
	// type of the set. Nil is for sets that are empty.
	Has func(set *policy.Set, e policy.Element) bool
}

// Dropped is packets that a rule drops, leads elsewhere or limits.
type Dropped struct {
	Slot int
	box  *box
}

// Value returns what such packets have in a numeric field: the usual value if they can have it,
// else the least.
func (d *Dropped) Value(f field.Field, usual uint64) uint64 {
	values := d.box.numbers[f]
	if len(values) == 0 || contains(values, usual) {
		return usual
	}
	return values[0].Lo
}

// maxOpen bounds the boxes of packets that no rule has decided yet. Beyond that, packets that rules
// pass count as not passed, so that no rule that drops is overlooked.
const maxOpen = 4096

// FirstDropped finds the first rule, in the order of the rules, that drops some of the packets, or
// hands them to who reads a ring. It is nil if all of them pass.
func (prog *Program) FirstDropped(t *Traffic) *Dropped {
	return prog.firstThat(t, (*Action).Takes)
}

// FirstUnanswered does the same where a cookie that answers is the end of what comes to it: who is
// asked says his packet again.
func (prog *Program) FirstUnanswered(t *Traffic) *Dropped {
	return prog.first(t, (*Action).Takes,
		func(a *Action) bool { return a.Decides() || a.answers() })
}

// Drops says whether all of the packets are dropped for sure, whatever is not known of them. It is
// false where there are too many kinds of them to tell.
func (prog *Program) Drops(t *Traffic) bool {
	open := []*box{t.box()}
	for i := range prog.Lists[t.Class.Index()] {
		r := &prog.Lists[t.Class.Index()][i]
		if !r.Action.Decides() && !r.Action.Takes() {
			continue
		}
		conds, possible := t.known(r.Conds)
		if !possible {
			continue
		}
		conds, sure := inBoxes(conds)
		var left []*box
		for _, b := range open {
			part, rest := b.cut(conds)
			switch {
			case part == nil || r.Action.Takes() && !sure:
				left = append(left, b)
			case !r.Action.Takes() || len(left)+len(rest) > maxOpen:
				return false
			default:
				left = append(left, rest...)
			}
		}
		if open = left; len(open) == 0 {
			return true
		}
	}
	return false
}

// FirstElsewhere does the same for rules that lead connections elsewhere.
func (prog *Program) FirstElsewhere(t *Traffic) *Dropped {
	return prog.firstThat(t, func(a *Action) bool {
		return slices.ContainsFunc(a.Effects,
			func(e Effect) bool { return e.Action.Info().Next != "" })
	})
}

// FirstLimited does the same for limits of which is holds: the packets may cost their budgets.
func (prog *Program) FirstLimited(t *Traffic, is func(*policy.Limit) bool) *Dropped {
	return prog.firstThat(t, func(a *Action) bool {
		return slices.ContainsFunc(a.Effects, func(e Effect) bool {
			return e.Limit != nil && is(e.Limit)
		})
	})
}

// Answered says whether some of the packets come to a cookie that answers each SYN of clients that
// are not proven, however few come.
func (prog *Program) Answered(t *Traffic) bool {
	return prog.firstThat(t, (*Action).answers) != nil
}

func (a *Action) answers() bool {
	return slices.ContainsFunc(a.Effects, func(e Effect) bool {
		return e.Action == action.Cookie && e.Answers == action.SYNs && e.Value == 0
	})
}

// firstThat finds the first rule that does what is wanted and that some of the packets reach.
func (prog *Program) firstThat(t *Traffic, does func(*Action) bool) *Dropped {
	return prog.first(t, does, (*Action).Decides)
}

// first does so where rules that end it are the last for the packets that they take.
func (prog *Program) first(t *Traffic, does, ends func(*Action) bool) *Dropped {
	open := []*box{t.box()}
	for i := range prog.Lists[t.Class.Index()] {
		r := &prog.Lists[t.Class.Index()][i]
		if !ends(r.Action) && !does(r.Action) {
			continue
		}
		conds, possible := t.known(r.Conds)
		if !possible {
			continue
		}
		conds, sure := inBoxes(conds)
		var left []*box
		for _, b := range open {
			part, rest := b.cut(conds)
			switch {
			case part == nil:
				left = append(left, b)
			case does(r.Action):
				return &Dropped{r.Slot, part}
			case !sure || len(left)+len(rest) > maxOpen:
				left = append(left, b)
			default:
				left = append(left, rest...)
			}
		}
		if open = left; len(open) == 0 {
			return nil
		}
	}
	return nil
}

// DropsMalformed says whether malformed frames of a reason, an index into policy.Malformed, are
// dropped, and by which slot.
func (prog *Program) DropsMalformed(reason int) (slot int, drops bool) {
	for i := range prog.Malformed {
		if r := &prog.Malformed[i]; r.Action.Decides() {
			return r.Slot, r.Action.Verdict == Drop
		}
	}
	return prog.Policy.MalformedSlot(reason), true
}

// box returns the packets as a box.
func (t *Traffic) box() *box {
	b := &box{}
	for f := range field.NumFields {
		b.numbers[f] = domains[f][t.Class.Index()]
	}
	b.numbers[field.Tags] = one(uint64(len(t.Tags)))
	b.numbers[field.VLAN], b.numbers[field.InnerVLAN] = one(absent), one(absent)
	for i, f := range []field.Field{field.VLAN, field.InnerVLAN}[:len(t.Tags)] {
		b.numbers[f] = one(uint64(t.Tags[i]))
	}
	for f, values := range t.Known {
		b.numbers[f] = values
	}
	for side, a := range []netip.Addr{t.Src, t.Dst} {
		if a.IsValid() {
			b.addrs[side] = []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
		}
	}
	return b
}

// known leaves out the conditions on dynamic sets that hold; false if one does not.
func (t *Traffic) known(conds []Cond) ([]Cond, bool) {
	if !slices.ContainsFunc(conds, func(c Cond) bool { return c.Dynamic() }) {
		return conds, true
	}
	var rest []Cond
	for i := range conds {
		c := &conds[i]
		if !c.Dynamic() {
			rest = append(rest, *c)
		} else if (t.Has != nil && t.Has(c.Set, t.element(c))) == c.Not {
			return nil, false
		}
	}
	return rest, true
}

// inBoxes leaves out the conditions that boxes have no side for, which hold for some of the packets
// and not for others. It is false if there are any.
func inBoxes(conds []Cond) (rest []Cond, all bool) {
	out := func(c Cond) bool { return !c.inBoxes() }
	if !slices.ContainsFunc(conds, out) {
		return conds, true
	}
	return slices.DeleteFunc(slices.Clone(conds), out), false
}

// element returns what is looked up in a dynamic set.
func (t *Traffic) element(c *Cond) (e policy.Element) {
	if c.Set.Type != policy.Services {
		a := [2]netip.Addr{t.Src, t.Dst}[sideOf(c)]
		e.Prefix = netip.PrefixFrom(a, a.BitLen())
	}
	if c.Set.Type == policy.Addresses {
		return e
	}
	e.Service.Proto = t.Class.Proto()
	if hasPorts(t.Class) {
		port := uint16(t.Known[c.Number][0].Lo)
		e.Service.Lo, e.Service.Hi = port, port
	} else if c.Number == field.Proto {
		e.Service.Proto = uint8(t.Known[field.Proto][0].Lo)
	}
	return e
}

// flagRanges returns the values of all eight flags for which a condition holds.
func flagRanges(c *Cond) (out []field.Range) {
	for v := range uint64(256) {
		if flagsHold(c, uint8(v)) {
			out = append(out, field.Range{Lo: v, Hi: v})
		}
	}
	return field.Join(out)
}
