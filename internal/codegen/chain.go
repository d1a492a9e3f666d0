package codegen

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"levee/internal/ir"
	"levee/internal/policy"
)

// maxInline is up to how many instructions of rules, as estimated, all are tried in the main function.
// Beyond it, and where a jump does not reach, each class gets a function of its own.
const maxInline = 12000

// chain is the rule list of one class, or of several with the same list.
type chain struct {
	label   string
	classes []ir.Class
	rules   []ir.Rule
	uses    [policy.NumFields]bool // fields that the list asks for
}

func (ch *chain) family() ir.Family { return ch.classes[0].Family }

// String names the packets that the chain judges.
func (ch *chain) String() string { return ch.classes[0].String() }

// shareChains gives each class its chain; classes whose lists ask the same share one.
func (c *compiler) shareChains() {
	for _, class := range ir.Classes() {
		rules := c.prog.Lists[class.Index()]
		i := slices.IndexFunc(c.chains, func(ch *chain) bool {
			return ch.family() == class.Family && slices.EqualFunc(ch.rules, rules, sameRule)
		})
		if i < 0 {
			ch := &chain{label: fmt.Sprintf("chain_%d", class.Index()), rules: rules}
			for j := range rules {
				for _, cond := range rules[j].Conds {
					ch.uses[cond.Field] = true
				}
			}
			i = len(c.chains)
			c.chains = append(c.chains, ch)
		}
		c.chains[i].classes = append(c.chains[i].classes, class)
		c.chainOf[class.Index()] = c.chains[i]
	}
}

func sameRule(a, b ir.Rule) bool {
	return a.Slot == b.Slot && slices.EqualFunc(a.Conds, b.Conds, sameCond)
}

func sameCond(a, b ir.Cond) bool {
	return a.Field == b.Field && a.Not == b.Not && a.Set == b.Set && a.Mask == b.Mask && a.Value == b.Value &&
		slices.Equal(a.Ranges, b.Ranges) && samePrefixes(a.Prefixes, b.Prefixes)
}

// chainLength estimates the instructions of all chains.
func (c *compiler) chainLength() int {
	n := 0
	for _, ch := range c.chains {
		for i := 0; i < len(ch.rules); i++ {
			if k := run(ch, ch.rules[i:]); k >= minRun {
				n += 300
				i += k - 1
				continue
			}
			n += 2
			for _, cond := range ch.rules[i].Conds {
				n += 4 * max(1, min(16, len(cond.Ranges)+len(cond.Prefixes)))
			}
		}
	}
	return n
}

// loadRegs fills the registers that a chain expects from struct key.
func (c *compiler) loadRegs(ch *chain) {
	if ch.uses[policy.DstPort] {
		c.field(regDstPort, keyDstPort, asm.Half)
	}
	if ch.uses[policy.ICMPType] || ch.uses[policy.ICMP6Type] {
		c.field(regDstPort, keyICMP, asm.Half)
	}
	if ch.uses[policy.SrcPort] {
		c.field(regSrcPort, keySrcPort, asm.Half)
	}
	if ch.uses[policy.SrcAddr] {
		c.field(regSrc, keySrcHi, asm.DWord)
	}
	if ch.uses[policy.DstAddr] {
		c.field(regDst, keyDstHi, asm.DWord)
	}
}

// keyPointer is where a chain that is a function keeps the address of struct key.
const keyPointer = -72

// field loads a field of struct key, given by its offset from R10 in the main function.
func (c *compiler) field(to asm.Register, at int16, size asm.Size) {
	if c.inFunction {
		c.emit(
			asm.LoadMem(to, asm.R10, keyPointer, asm.DWord),
			asm.LoadMem(to, to, at-keyAt, size),
		)
		return
	}
	c.emit(asm.LoadMem(to, asm.R10, at, size))
}

// emitChain emits a rule list. Inline it jumps to the verdict; as a function it returns the offset
// of the counter, plus 1 for pass.
func (c *compiler) emitChain(ch *chain) {
	if c.separate {
		c.emit(signature(asm.StoreMem(asm.R10, keyPointer, asm.R1, asm.DWord).WithSymbol(ch.label), btf.StaticFunc, typePtr))
		c.inFunction = true
		defer func() { c.inFunction = false }()
		c.loadRegs(ch)
	} else {
		c.label(ch.label)
	}
	for rules := ch.rules; len(rules) > 0; {
		n := run(ch, rules)
		if n < minRun || !c.many(ch, rules[:n]) {
			n = max(n, 1)
			for i := range n {
				c.rule(ch, &rules[i])
			}
		}
		rules = rules[n:]
	}
	// The last rule has no conditions: nothing jumps behind it.
	c.pending = c.pending[:0]
}

// rule emits one rule: its questions, then what it does.
func (c *compiler) rule(ch *chain, r *ir.Rule) {
	next := c.fresh("next")
	for i := range r.Conds {
		c.cond(ch, &r.Conds[i], next)
	}
	switch {
	case r.Action == policy.Count:
		c.count(r.Slot)
	case c.separate:
		c.emit(asm.Mov.Imm32(asm.R0, int32(result(r))), asm.Return())
	default:
		c.decide(r)
	}
	c.label(next)
}

// enter leaves the fast path for the rules of a chain, whose fields lie in the registers, or in
// struct key where chains are functions. There is one call of each function, so that the verifier
// walks it once.
func (c *compiler) enter(ch *chain) {
	if c.separate {
		c.emit(asm.Ja.Label("enter_" + ch.label))
		return
	}
	c.emit(asm.Ja.Label(ch.label))
}

// enterFromKey is where the slow path, and the fast path where chains are functions, go to the
// rules of a chain with struct key filled.
func (c *compiler) enterFromKey(ch *chain) {
	c.label("enter_" + ch.label)
	if !c.separate {
		c.loadRegs(ch)
		c.emit(asm.Ja.Label(ch.label))
		return
	}
	c.emit(
		asm.Mov.Reg(asm.R1, asm.R10),
		asm.Add.Imm(asm.R1, int32(keyAt)),
		asm.Call.Label(ch.label),
	)
	c.leave()
}

// cond emits one question; it falls through where the answer is yes.
func (c *compiler) cond(ch *chain, q *ir.Cond, no string) {
	switch q.Field {
	case policy.SrcAddr, policy.DstAddr:
		c.address(ch, q, no)
	case policy.TCPFlags:
		c.flags(q, no)
	default:
		c.number(q, no)
	}
}
