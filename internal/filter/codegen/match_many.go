package codegen

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
	"levee/internal/filter/prefix"
	"levee/internal/filter/ruletree"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/syntax"
)

// A run of at least minRun rules that ask for addresses and ports only is looked up in a table
// (package ruletree) instead of being compared rule by rule.
const minRun = 48

// maxBoxes is how many boxes the lists of one rule may multiply to within a run.
const maxBoxes = 16

// run counts the rules from the start of the list that a table can hold.
func run(ch *chain, rules []ir.Rule) int {
	for i := range rules {
		if !boxable(ch, &rules[i]) {
			return i
		}
	}
	return len(rules)
}

// boxable reports whether a table can hold a rule. What is built in is compared, so that classes whose other rules are
// the same share their table.
func boxable(ch *chain, r *ir.Rule) bool {
	if r.Slot >= ch.builtIn || len(r.Conds) == 0 || ch.family() == ir.NonIP {
		return false
	}
	if len(ch.extension.of(r)) > 0 || !r.Action.Decides() || !r.Action.May(action.MayBeTree) {
		return false
	}
	var seen [field.NumFields]bool
	for i := range r.Conds {
		q := &r.Conds[i]
		if seen[q.Field] || q.Dynamic() {
			return false
		}
		seen[q.Field] = true
		if q.Field.Info().Box == field.NoBox || q.Not {
			return false
		}
	}
	return boxesOf(r) <= maxBoxes
}

// boxesOf is how many boxes the lists of a rule multiply to, or one more than maxBoxes if they are more.
func boxesOf(r *ir.Rule) int {
	n := 1
	for i := range r.Conds {
		n = min(n*max(len(r.Conds[i].Prefixes), len(r.Conds[i].Ranges)), maxBoxes+1)
	}
	return n
}

// boxes multiplies the lists of a rule out. The second number of a box is the destination port,
// the ICMP type or the protocol, of which no class of packets has two to ask for.
func boxes(r *ir.Rule, any netip.Prefix, out []ruletree.Box) []ruletree.Box {
	first := len(out)
	out = append(out, ruletree.Box{Src: any, Dst: any, Ports: [2]ruletree.Span{ruletree.Any, ruletree.Any}, Result: result(r)})
	for i := range r.Conds {
		q := &r.Conds[i]
		var few [maxBoxes]ruletree.Box // see boxable
		base, side := few[:copy(few[:], out[first:])], q.Field.Info().Box
		out = out[:first]
		for _, b := range base {
			for _, p := range q.Prefixes {
				if side == field.BoxSrc {
					b.Src = p
				} else {
					b.Dst = p
				}
				out = append(out, b)
			}
			for _, v := range q.Ranges {
				n := 1
				if side == field.BoxNumber0 {
					n = 0
				}
				b.Ports[n] = ruletree.Span{Lo: uint16(v.Lo), Hi: uint16(min(v.Hi, math.MaxUint16))}
				out = append(out, b)
			}
		}
	}
	return out
}

// result is the offset of the rule's counter, plus 1 for pass. Slots are in the order of rules, so the first of the rules that
// match has the lowest.
func result(r *ir.Rule) uint32 {
	v := uint32(r.Slot * SlotBytes)
	if r.Action.Verdict == ir.Pass {
		v++
	}
	return v
}

// Where these compile, no policy has more rules than results tell apart, with what is built in, and no pool that fits into a map more pairs of
// ports than have numbers.
const (
	_ = uint(ruletree.MaxResult - SlotBytes*(syntax.MaxStatements+1000))
	_ = uint(ruletree.MaxSize - prefix.MaxBytes)
)

// pool holds the tables of runs of one family, and is searched by one function.
type pool struct {
	*ruletree.Pool
	label string       // of the function
	any   netip.Prefix // all addresses
}

// maps are the names of the pool's memory.
func (p *pool) maps() ruletree.Maps {
	return ruletree.Maps{Trees: p.label + "_trees", Ports: p.label + "_ports"}
}

// poolOf gives the pool of a family, which is made when it is first asked for.
func (c *compiler) poolOf(f ir.Family) *pool {
	if c.pools[f] == nil {
		top := uint32(c.rowBytes) // see result
		if f == ir.IPv4 {
			c.pools[f] = &pool{ruletree.NewPool(32, top), "classify4", netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
		} else {
			c.pools[f] = &pool{ruletree.NewPool(128, top), "classify6", netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
		}
	}
	return c.pools[f]
}

// emitPools emits the functions that search the pools, and gives their memory its place.
func (c *compiler) emitPools() {
	for _, p := range c.pools {
		if p != nil {
			maps := p.maps()
			c.room(maps.Trees, p.Size(), p.Put)
			c.room(maps.Ports, p.PortsSize(), p.PutPorts)
			p.Following(c.Builder, maps, p.label)
		}
	}
}

// runTable is the table of a run, which classes of packets share.
type runTable struct {
	family ir.Family
	rules  []ir.Rule
	table  *ruletree.Table
	row    int // in compiler.tables
}

// tableOfRun makes the table of a run, or finds it.
func (c *compiler) tableOfRun(ch *chain, rules []ir.Rule) *ruletree.Table {
	for _, r := range c.runs {
		if r.family == ch.family() && slices.EqualFunc(r.rules, rules, sameRule) {
			c.tables[r.row].For += "; " + ch.String()
			return r.table
		}
	}
	p, n := c.poolOf(ch.family()), 0
	for i := range rules {
		n += boxesOf(&rules[i])
	}
	list := make([]ruletree.Box, 0, n)
	for i := range rules {
		list = boxes(&rules[i], p.any, list)
	}
	t := p.Add(list)
	c.runs = append(c.runs, runTable{ch.family(), rules, t, len(c.tables)})
	c.table(fmt.Sprintf("%d rules, %s", len(rules), ch), t.Kind(), t.Bytes(),
		fmt.Sprintf("%d rules or more in a row on addresses and ports: the cost does not grow with their number", minRun))
	return t
}

// many looks a run of rules up in one table; it falls through where none matches.
func (c *compiler) many(ch *chain, rules []ir.Rule) {
	p, t := c.poolOf(ch.family()), c.tableOfRun(ch, rules)
	c.givePacket(ch)
	c.lookUp(p, t)
	none := c.fresh("none")
	c.emit(asm.JEq.Imm(asm.R0, 0, none))
	if c.separate {
		c.emit(asm.Return())
	} else {
		c.leave()
	}
	c.label(none)
	c.takeBack(ch)
}

// maxTreesInPlace is how many trees, of all look-ups together, have their first walks in place: they have the verifier walk some
// 400,000 instructions, of the million that it takes. Further look-ups cost it next to nothing, and a packet 10 to 40 ns more.
const maxTreesInPlace = 48

// lookUp emits a look-up in a table of a pool, of the packet that was put where package ruletree wants it.
func (c *compiler) lookUp(p *pool, t *ruletree.Table) {
	inPlace := c.treesInPlace+t.Trees() <= maxTreesInPlace
	if inPlace {
		c.treesInPlace += t.Trees()
	}
	t.Emit(c.Builder, p.maps(), p.label, packetAt, inPlace)
}

// packetAt is where on the stack package ruletree is given IPv6 packets, and the last word of them, which keeps a
// register.
const (
	packetAt = -ruletree.PacketBytes
	keptAt   = packetAt + ruletree.PacketBytes - 8
)

// givePacket puts the fields that rules of a chain ask for where package ruletree looks for them; 0 for those
// that none does.
func (c *compiler) givePacket(ch *chain) {
	if ch.family() == ir.IPv6 {
		c.give6(ch)
		return
	}
	if ch.uses[field.SrcAddr] {
		c.emit(asm.LSh.Imm(ruletree.RegAddresses, 32))
	} else {
		c.emit(asm.Mov.Imm(ruletree.RegAddresses, 0))
	}
	if ch.uses[field.DstAddr] {
		c.emit(asm.Or.Reg(ruletree.RegAddresses, regDst))
	}
	c.giveNumber(ch, field.BoxNumber0, ruletree.RegPort0)
	c.giveNumber(ch, field.BoxNumber1, ruletree.RegPort1)
}

// giveNumber puts the field that the rules ask for on a side of boxes into a register, in which it may be.
func (c *compiler) giveNumber(ch *chain, side field.Box, to asm.Register) {
	f, ok := ch.side(side)
	if !ok {
		c.emit(asm.Mov.Imm(to, 0))
		return
	}
	if reg, hot := hotRegister(f); hot && reg == to {
		return
	}
	reg, _ := c.value(f)
	c.emit(asm.Mov.Reg(to, reg))
}

// side gives the field that the rules of a chain ask for on a side of boxes, if there is one.
func (ch *chain) side(side field.Box) (f field.Field, ok bool) {
	for f := range field.NumFields {
		if ch.uses[f] && f.Info().Box == side {
			return f, true
		}
	}
	return 0, false
}

// Where these compile, registers of the rules are those of a look-up: givePacket and givePair change the
// others only.
const (
	_ = uint8(regSrc - ruletree.RegAddresses)
	_ = uint8(regDstPort - ruletree.RegPort1)
	_ = uint8(regSrcPort - ruletree.RegPort0)
)

// takeBack undoes givePacket and what the look-up has overwritten.
func (c *compiler) takeBack(ch *chain) {
	dst := ch.uses[field.DstAddr]
	if ch.family() == ir.IPv6 {
		if dst {
			c.emit(asm.LoadMem(regDst, asm.R10, keptAt, asm.DWord))
		}
		return
	}
	if dst {
		c.emit(asm.Mov.Reg32(regDst, ruletree.RegAddresses))
	}
	if ch.uses[field.SrcAddr] {
		c.emit(asm.RSh.Imm(regSrc, 32))
	}
}

// give6 is givePacket for IPv6.
func (c *compiler) give6(ch *chain) {
	c.emit(asm.Mov.Imm(asm.R0, 0))
	c.keepDst(ch)
	address := func(f field.Field, reg asm.Register, upper, lower, key int16) {
		if !ch.uses[f] {
			c.storePacket(upper, asm.R0)
			c.storePacket(lower, asm.R0)
			return
		}
		c.storePacket(upper, reg)
		c.field(asm.R1, key, asm.DWord)
		c.storePacket(lower, asm.R1)
	}
	address(field.SrcAddr, regSrc, ruletree.SrcAt, ruletree.SrcLoAt, keySrcLo)
	address(field.DstAddr, regDst, ruletree.DstAt, ruletree.DstLoAt, keyDstLo)
	c.emit(asm.Mov.Imm(asm.R2, 0))
	if f, ok := ch.side(field.BoxNumber0); ok {
		reg, _ := c.value(f)
		c.emit(asm.Mov.Reg(asm.R2, reg), asm.LSh.Imm(asm.R2, 16))
	}
	if f, ok := ch.side(field.BoxNumber1); ok {
		reg, _ := c.value(f)
		c.emit(asm.Or.Reg(asm.R2, reg))
	}
	c.storePacket(ruletree.PortsAt, asm.R2)
}

// keepDst keeps the register that a look-up of an IPv6 packet overwrites; R0 is 0.
func (c *compiler) keepDst(ch *chain) {
	reg := asm.R0
	if ch.uses[field.DstAddr] {
		reg = regDst
	}
	c.emit(asm.StoreMem(asm.R10, keptAt, reg, asm.DWord))
}

func (c *compiler) storePacket(field int16, reg asm.Register) {
	c.emit(asm.StoreMem(asm.R10, packetAt+field, reg, asm.DWord))
}
