package codegen

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/cilium/ebpf/asm"

	"levee/internal/classify"
	"levee/internal/ir"
	"levee/internal/policy"
)

// A run of at least minRun rules that ask for addresses and ports only is looked up in a table
// (package classify) instead of being compared rule by rule.
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

func boxable(ch *chain, r *ir.Rule) bool {
	if r.Action == policy.Count || len(r.Conds) == 0 || ch.family() == ir.NonIP {
		return false
	}
	boxes := 1
	var seen [policy.NumFields]bool
	for i := range r.Conds {
		q := &r.Conds[i]
		if seen[q.Field] || q.Dynamic() {
			return false
		}
		seen[q.Field] = true
		switch q.Field {
		case policy.SrcAddr, policy.DstAddr:
			if q.Not {
				return false
			}
			boxes *= len(q.Prefixes)
		case policy.SrcPort, policy.DstPort, policy.ICMPType, policy.ICMP6Type, policy.Proto:
			boxes *= len(q.Ranges)
		default:
			return false
		}
		if boxes > maxBoxes {
			return false
		}
	}
	return true
}

// boxes multiplies the lists of a rule out. The second number of a box is the destination port,
// the ICMP type or the protocol, of which no class of packets has two to ask for.
func boxes(r *ir.Rule, any netip.Prefix, out []classify.Box) []classify.Box {
	first := len(out)
	out = append(out, classify.Box{Src: any, Dst: any, Ports: [2]classify.Span{classify.Any, classify.Any}, Result: result(r)})
	for i := range r.Conds {
		q := &r.Conds[i]
		base := append([]classify.Box(nil), out[first:]...)
		out = out[:first]
		for _, b := range base {
			for _, p := range q.Prefixes {
				if q.Field == policy.SrcAddr {
					b.Src = p
				} else {
					b.Dst = p
				}
				out = append(out, b)
			}
			for _, v := range q.Ranges {
				n := 1
				if q.Field == policy.SrcPort {
					n = 0
				}
				b.Ports[n] = classify.Span{Lo: uint16(v.Lo), Hi: uint16(min(v.Hi, math.MaxUint16))}
				out = append(out, b)
			}
		}
	}
	return out
}

// result is the offset of the rule's counter, plus 1 for pass.
func result(r *ir.Rule) uint32 {
	v := uint32(r.Slot * SlotBytes)
	if r.Action == policy.Pass {
		v++
	}
	return v
}

// many looks a run of rules up in one table; it falls through where none matches. It reports false,
// having emitted nothing, where the rules cannot be told apart by a table.
func (c *compiler) many(ch *chain, rules []ir.Rule) bool {
	width, any := 32, netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if ch.family() == ir.IPv6 {
		width, any = 128, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	var list []classify.Box
	for i := range rules {
		list = boxes(&rules[i], any, list)
	}
	t := classify.New(width, list)
	if len(t.Rest()) > 0 {
		return false
	}
	name := fmt.Sprintf("rules_%d", c.classifiers)
	c.classifiers++
	c.constant(name, t.Memory())
	c.table(fmt.Sprintf("%d rules, %s", len(rules), ch), t.Kind(), t.Bytes(),
		fmt.Sprintf("%d rules or more in a row on addresses and ports: the cost does not grow with their number", minRun))

	c.storeBoxFields(ch)
	c.emit(t.Emit(name, c.fresh("classify"))...)
	none := c.fresh("none")
	c.emit(asm.JEq.Imm(asm.R0, 0, none))
	if c.separate {
		c.emit(asm.Return())
	} else {
		c.leave()
	}
	c.label(none)
	return true
}

// storeBoxFields puts the fields of the packet where package classify looks for them.
func (c *compiler) storeBoxFields(ch *chain) {
	c.emit(asm.Mov.Imm(asm.R0, 0)) // for the fields that no rule asks for
	number := func(at int16, fields ...policy.Field) {
		for _, f := range fields {
			if ch.uses[f] {
				reg, _ := c.value(f)
				c.emit(asm.StoreMem(asm.R10, at, reg, asm.DWord))
				return
			}
		}
		c.emit(asm.StoreMem(asm.R10, at, asm.R0, asm.DWord))
	}
	address := func(f policy.Field, reg asm.Register, at, lowAt, key int16) {
		if !ch.uses[f] {
			c.emit(asm.StoreMem(asm.R10, at, asm.R0, asm.DWord), asm.StoreMem(asm.R10, lowAt, asm.R0, asm.DWord))
			return
		}
		c.emit(asm.StoreMem(asm.R10, at, reg, asm.DWord))
		if ch.family() == ir.IPv6 {
			c.field(asm.R1, key, asm.DWord)
			c.emit(asm.StoreMem(asm.R10, lowAt, asm.R1, asm.DWord))
		}
	}
	address(policy.SrcAddr, regSrc, classify.SrcAt, classify.SrcLoAt, keySrcLo)
	address(policy.DstAddr, regDst, classify.DstAt, classify.DstLoAt, keyDstLo)
	number(classify.Port0At, policy.SrcPort)
	number(classify.Port1At, policy.DstPort, policy.ICMPType, policy.ICMP6Type, policy.Proto)
}
