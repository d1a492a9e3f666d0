package plan

import (
	"slices"

	"levee/internal/filter/flow"
	"levee/internal/filter/ir"
	"levee/internal/filter/price"
	"levee/internal/filter/ruletree"
	"levee/internal/filter/tunnel"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Traffic is packets of a class that a slot decides.
type Traffic struct {
	Class   ir.Class
	Slot    int
	Packets float64
}

// times is the time of a packet: at least, and among packets in no order.
type times struct{ least, any price.Time }

func (t times) plus(u times) times { return times{t.least.Plus(u.least), t.any.Plus(u.any)} }

func (t times) part(n float64) times { return times{t.least.Times(n), t.any.Times(n)} }

// both returns a time that is the same in either case.
func both(t price.Time) times { return times{t, t} }

// wait returns a time of waiting that is the same in either case.
func wait(ns float64) times { return both(price.Wait(ns)) }

// priced is a block's times, over all packets of a chain, and what of it is made here.
type priced struct {
	times
	instructions, bytes int
}

func (p *priced) add(q priced) {
	p.times = p.plus(q.times)
	p.instructions += q.instructions
	p.bytes += q.bytes
}

// costs says what all blocks cost, and the whole for traffic that is spread evenly.
func (p *planner) costs() {
	for _, c := range slices.Concat(p.Chains, p.Within) {
		p.walk(c, &passage{write: true})
	}
	p.Cost.Least, p.Cost.Ns = p.Estimate(price.Default, p.Evenly())
}

// Estimate returns the ns of a packet on a machine, the mean over traffic: where packets are like
// those before them, and in no order.
func (p *Plan) Estimate(m price.Machine, traffic []Traffic) (least, ns float64) {
	of := map[*Chain][]float64{} // packets, by slot
	sum, packets := times{}, 0.0
	for _, t := range traffic {
		packets += t.Packets
		if p.malformed(t.Slot) {
			sum = sum.plus(wait(price.Malformed).part(t.Packets))
			continue
		}
		c := p.ChainOf[t.Class.Index()]
		if of[c] == nil {
			of[c] = make([]float64, len(p.Slots))
		}
		of[c][t.Slot] += t.Packets
		if t.Class.Fragment {
			sum = sum.plus(wait(price.Careful).part(t.Packets))
		}
	}
	for _, c := range p.Chains {
		if bySlot := of[c]; bySlot != nil {
			p.walk(c, &passage{decided: func(slot int, t times) {
				sum = sum.plus(t.part(bySlot[slot]))
			}})
		}
	}
	packets = max(packets, 1)
	return sum.least.On(m) / packets, sum.any.On(m) / packets
}

// malformed reports whether a slot counts frames that the decoder refuses. What is found malformed
// beside other fragments has come to a rule that follows them.
func (p *Plan) malformed(slot int) bool {
	s := p.Slots[slot]
	return s.Reason == policy.ByMalformed && !slices.Contains(besideOthers, slot) ||
		s.Rule != nil && s.Rule.Malformed
}

// besideOthers are the slots of what is found malformed beside other fragments only.
var besideOthers = []int{
	packet.FragmentOverlap.Slot(), packet.FragmentTiny.Slot(), packet.FragmentOrphan.Slot(),
}

// passage is the packets of a chain on their way through its blocks.
type passage struct {
	all, passed int   // rules that decide: in total, and those already passed
	spent       times // of a packet that none has decided
	// decided is told what a packet took that a slot decided.
	decided func(slot int, t times)
	write   bool // costs into blocks
	follows bool // a rule that follows fragments has been passed
	chain   *Chain
}

// share returns the part of packets that are not decided yet.
func (f *passage) share() float64 {
	if f.chain.within {
		return 1 // nothing is decided there
	}
	return float64(f.all-f.passed) / float64(max(1, f.all))
}

// end is told of a rule that decides, and what a packet took that it decided, since spent.
func (p *Plan) end(f *passage, r *ir.Rule, t times) {
	f.passed++
	p.tell(f, r, t)
}

// tell is told of a packet that a rule decides, and what it took, since spent.
func (p *Plan) tell(f *passage, r *ir.Rule, t times) {
	if slices.ContainsFunc(r.Conds, func(c ir.Cond) bool {
		return c.Field.Info().Header.Presence().Tags > 0
	}) {
		t = t.plus(wait(price.Careful)) // a tagged frame
	}
	f.tell(r.Slot, t.plus(p.looked(f.chain.Classes[0], r)))
}

// looked returns what a packet that the rule decides takes if it is looked into for one within a
// tunnel.
func (p *Plan) looked(c ir.Class, r *ir.Rule) times {
	if !p.LooksInside() {
		return times{}
	}
	may := false
	for i := range r.Conds {
		switch q := &r.Conds[i]; {
		case q.Inner != nil:
			return wait(price.Look + price.Within)
		case q.Field == field.DstPort && c.Transport == ir.UDP:
			may = may || among(q.Ranges, tunnel.Ports)
		case q.Field == field.Proto:
			may = may || among(q.Ranges, tunnel.Protocols)
		}
	}
	if may {
		return wait(price.Look)
	}
	return times{}
}

// among reports whether ranges hold none but some values.
func among[T uint8 | uint16](ranges []field.Range, values []T) bool {
	for _, r := range ranges {
		if r.Lo != r.Hi || !slices.Contains(values, T(r.Lo)) {
			return false
		}
	}
	return true
}

func (f *passage) tell(slot int, t times) {
	if f.decided != nil {
		f.decided(slot, f.spent.plus(t))
	}
}

// track records a rule that follows fragments, and the cost of a fragment that it has looked up:
// that fragment passes or is malformed.
func (f *passage) track(slot int, t times) {
	f.tell(slot, t)
	if f.follows {
		return
	}
	f.follows = true
	for _, slot := range besideOthers {
		f.tell(slot, t)
	}
}

// unasked returns the time that a packet saves whose ICMP type is not looked up as a connection's,
// for rules on such types only; else zero.
func (f *passage) unasked(r *Rule) times {
	class := f.chain.Classes[0]
	if !f.chain.Tracked || class.Transport != ir.ICMP {
		return times{}
	}
	asked := flow.Asked(class.Family == ir.IPv6)
	for i := range r.Conds {
		c := &r.Conds[i]
		if c.Not || c.Field != field.ICMPType && c.Field != field.ICMP6Type {
			continue
		}
		if !slices.ContainsFunc(c.Ranges, func(v field.Range) bool {
			return slices.ContainsFunc(asked, func(kind uint8) bool {
				return v.Lo>>8 <= uint64(kind) && uint64(kind) <= v.Hi>>8
			})
		}) {
			return wait(-price.Flow)
		}
	}
	return times{}
}

// note writes what a block costs.
func (f *passage) note(n *Node, t priced) priced {
	if f.write {
		n.Cost = Cost{t.least.On(price.Default), t.any.On(price.Default), t.instructions, t.bytes}
	}
	return t
}

// walk follows packets through a chain.
func (p *Plan) walk(c *Chain, f *passage) {
	for i := range c.Rules {
		if c.Rules[i].Action.Decides() {
			f.all++
		}
	}
	decode := [...]float64{
		ir.NonIP: price.Decode0, ir.IPv4: price.Decode4, ir.IPv6: price.Decode6,
	}[c.Family()]
	if c.Tracked {
		decode += price.Flow
	}
	for _, a := range c.Answers() {
		decode += a.Time
	}
	if c.Asks[field.ProvenFlow] {
		decode += price.Echo
	}
	if c.AsksRoute() {
		decode += [...]float64{ir.IPv4: price.Route4, ir.IPv6: price.Route6}[c.Family()]
	}
	if c.asksSender() {
		decode += c.senderPrice()
	}
	if c.Asks[field.Stream] {
		decode += price.Hash
	}
	f.chain, f.spent = c, wait(price.Decide+decode)
	f.spent.any = f.spent.any.Plus(price.Wait(price.Mixed)).Plus(p.counter())
	if c.within {
		f.spent = wait(price.Look + price.Within)
	}
	t := priced{f.spent, sizeChain, 0}
	if c.Tracked {
		t.instructions += sizeFlow
	}
	for _, a := range c.Answers() {
		t.instructions += a.Size
	}
	if c.Asks[field.ProvenFlow] {
		t.instructions += sizeEcho
	}
	if c.AsksRoute() {
		t.instructions += sizeRoute
	}
	if c.asksOrigin() {
		t.instructions += sizeSender
	}
	if c.Asks[field.Stream] {
		t.instructions += sizeStream
	}
	for _, b := range c.Do {
		t.add(p.block(b, f))
	}
	f.note(&c.Node, t)
}

// counter returns what it takes that packets in no order count in as many counters.
func (p *Plan) counter() price.Time { return price.Memory(float64(SlotBytes * len(p.Slots))) }

// block follows packets through a block.
func (p *Plan) block(b Block, f *passage) priced {
	switch b := b.(type) {
	case *Straight:
		return p.straightTimes(b, f)
	case *RuleTree:
		return p.treeTimes(b, f)
	case *Bytecode:
		return p.bytecodeTimes(b, f)
	case *Function:
		return p.functionTimes(b, f)
	}
	return priced{}
}

func (p *Plan) functionTimes(b *Function, f *passage) priced {
	first := b.Cost == Cost{}
	call := wait(price.Call)
	t := priced{call.part(f.share()), sizeFunction, 0}
	f.spent = f.spent.plus(call)
	for _, in := range b.Do {
		t.add(p.block(in, f))
	}
	if first {
		f.note(&b.Node, t)
	} else {
		t.instructions, t.bytes = 0, 0
	}
	t.instructions += sizeCall
	return t
}

// passes is the part of packets for which a condition holds, and which so come to the next.
const passes = 0.3

func (p *Plan) straightTimes(s *Straight, f *passage) priced {
	all := priced{}
	for _, r := range s.Rules {
		share, come := f.share(), 1.0
		whole, some := times{}, times{} // of a packet that the rule decides, and of one of all
		t := priced{instructions: r.extra}
		if f.chain.within {
			t.instructions += sizeNote
		}
		for _, q := range r.Questions {
			took := p.questionTimes(q)
			whole = whole.plus(took)
			took = took.part(come)
			some = some.plus(took)
			asked := priced{took.part(share), q.Cost.Instructions, 0}
			if f.write {
				q.Cost.Least, q.Cost.Ns = asked.least.On(price.Default), asked.any.On(price.Default)
			}
			if q.Lookup != nil {
				asked.bytes = q.Lookup.Cost.Bytes
				f.note(&q.Lookup.Node, asked)
			}
			t.add(asked)
			come *= passes
		}
		for i := range r.Conds {
			if InPacket(&r.Conds[i]) {
				took := wait(price.Bytes)
				switch {
				case r.Conds[i].Inner != nil:
					took = both(price.Core(price.Compare))
				case r.Conds[i].Field == field.Stream:
					took = wait(price.Search + price.Stream + price.Searched*price.Byte)
				case r.Conds[i].Pattern != nil:
					took = wait(price.Search + price.Searched*price.Byte)
				case r.Conds[i].Names != nil:
					took = wait(price.Message + price.Name)
				case AsksMessage(&r.Conds[i]):
					took = wait(price.Message)
				}
				whole, some = whole.plus(took), some.plus(took.part(come))
				t.add(priced{took.part(come * share), 0, 0})
				come *= passes
			}
		}
		if len(r.Conds) == 0 {
			come = 1
		}
		for _, does := range r.Does {
			switch does := does.(type) {
			case *Effect:
				took := both(does.takes.time)
				whole, some = whole.plus(took), some.plus(took.part(come))
				t.add(f.note(&does.Node, priced{took.part(come * share), does.takes.size, 0}))
				switch {
				case does.Action == action.Track:
					f.track(does.Slot, whole)
				case !r.Action.Decides() && does.Action.MayDecide(): // a limit, a cookie
					p.tell(f, r.Rule, whole)
				}
			case *Verdict:
				taken := times{} // of the branch to the verdict
				if len(r.Conds) > 0 {
					taken.any = price.Wait(price.Surprise)
				}
				p.end(f, r.Rule, whole.plus(taken).plus(f.unasked(r)))
				taken = taken.part(1 / float64(max(1, f.all)))
				t.add(f.note(&does.Node, priced{taken, sizeVerdict, 0}))
			}
		}
		f.spent = f.spent.plus(some)
		all.add(f.note(&r.Node, t))
	}
	return f.note(&s.Node, all)
}

// questionTimes returns what a question takes a packet that comes to it.
func (p *Plan) questionTimes(q *Question) times {
	switch {
	case q.By == InTable:
		return p.lookupTimes(q.Lookup, q.Number != 0)
	case q.Field.Info().Compare == field.ByMask:
		return both(price.Core(price.Compare))
	}
	n := 1 + len(q.Ranges) + len(q.Prefixes) + 2*len(q.Pairs)
	return both(price.Core(price.Compare).Times(float64(n)))
}

func (p *Plan) lookupTimes(l *Lookup, pairs bool) times {
	surprise := times{any: price.Wait(price.Surprise)}
	switch {
	case l.endpoints():
		matched, strange := p.walks(l.Tree)
		return matched.plus(strange).part(0.5)
	case l.Table == nil && pairs:
		return wait(price.Endpoint).plus(surprise)
	case l.Table == nil:
		return wait(price.Dynamic).plus(surprise)
	case l.Table.Bits != nil:
		return wait(price.Bits).plus(times{any: price.Memory(float64(l.Table.Bytes))})
	}
	levels := float64(l.Table.Prefixes.Levels())
	memory := times{any: price.Memory(float64(l.Table.Bytes))}
	level := price.Wait(price.Level)
	return times{level.Times(price.Overlap), level}.plus(memory).part(levels)
}

// walks returns what a look-up in a rule tree takes, of a packet that it is made for, and of
// another.
func (p *Plan) walks(t *Tree) (matched, strange times) {
	bytes := t.Pool.Size() + t.Pool.PortsSize() + SlotBytes*len(p.Slots)
	of := func(w *ruletree.Walks) times { return times{w.Least(), w.Time(bytes)} }
	return of(&t.Matched), of(&t.Strange)
}

func (p *Plan) treeTimes(b *RuleTree, f *passage) priced {
	matched, strange := p.walks(b.Tree)
	part := float64(len(b.Rules)) / float64(max(1, f.all))
	t := matched.part(part).plus(strange.part(f.share() - part))
	for i := range b.Rules {
		p.end(f, &b.Rules[i], matched)
	}
	f.spent = f.spent.plus(strange)
	return f.note(&b.Node, priced{t, sizeTree, b.Cost.Bytes})
}

func (p *Plan) bytecodeTimes(b *Bytecode, f *passage) priced {
	first := b.Cost.Ns == 0
	each := float64(max(1, b.Questions)) / float64(len(b.Rules))
	ops := b.Counting.Cuts + b.Deciding.Cuts + (b.Counting.Rules+b.Deciding.Rules)*each
	took := wait(price.Enter + price.Op*ops)
	took.any = took.any.Plus(price.Wait(2*price.Surprise + price.Strange*ops))
	t := f.note(&b.Node, priced{took.part(f.share()), b.Cost.Instructions, b.Cost.Bytes})
	for i := range b.Rules {
		if b.Rules[i].Action.Decides() {
			p.end(f, &b.Rules[i], took)
		}
	}
	f.spent = f.spent.plus(took)
	if !first {
		t.bytes = 0
	}
	t.instructions = sizeCall
	return t
}

// Evenly is traffic that is spread evenly over the rules that decide.
func (p *Plan) Evenly() []Traffic { return p.Spread(func(int) float64 { return 1 }) }

// Spread is traffic with so many packets of each slot, in the classes that are the most common of
// those in which the slot decides: TCP and UDP; ICMP and others; the rest.
func (p *Plan) Spread(packets func(slot int) float64) []Traffic {
	var common []ir.Class
	all := p.decided()
	out := make([]Traffic, 0, len(all))
	for slot, chains := range all {
		best := 0
		common = common[:0]
		for _, chain := range chains {
			for _, c := range chain.Classes {
				switch rank := rankOf(c); {
				case len(common) == 0 || rank < best:
					best, common = rank, append(common[:0], c)
				case rank == best:
					common = append(common, c)
				}
			}
		}
		for _, c := range common {
			out = append(out, Traffic{c, slot, packets(slot) / float64(len(common))})
		}
	}
	return out
}

// decided lists the chains in which each slot decides, for each of its rules there.
func (p *Plan) decided() [][]*Chain {
	each := func(do func(slot int, c *Chain)) {
		for _, c := range p.Chains {
			for i := range c.Rules {
				if r := &c.Rules[i]; r.Action.Decides() {
					do(r.Slot, c)
				}
			}
		}
	}
	rules, sum := make([]int, len(p.Slots)), 0
	each(func(slot int, _ *Chain) { rules[slot]++; sum++ })
	room, out := make([]*Chain, sum), make([][]*Chain, len(p.Slots))
	for slot, n := range rules {
		out[slot], room = room[:0:n], room[n:]
	}
	each(func(slot int, c *Chain) { out[slot] = append(out[slot], c) })
	return out
}

// rankOf tells common classes of packets, 0, from rare ones.
func rankOf(c ir.Class) int {
	switch {
	case c.Family == ir.NonIP:
		return 3
	case c.Fragment:
		return 2
	}
	switch c.Transport {
	case ir.TCP, ir.UDP:
		return 0
	case ir.ICMP, ir.Other:
		return 1
	}
	return 2
}
