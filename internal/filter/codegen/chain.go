package codegen

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
)

// maxInline is up to how many instructions of rules, as estimated, all are tried in the main function.
// Beyond it, and where a jump does not reach, each class gets functions of its own.
const maxInline = 12000

// maxQuestions is how many questions a function of rules asks. The verifier keeps a way open for
// each while it walks a function, 8,192 at most (BPF_COMPLEXITY_LIMIT_JMP_SEQ), and what it keeps
// makes it slow.
const maxQuestions = 500

// maxStraight is up to how many compares rules in a row are instructions of their own. Beyond it they become
// records (machine.go): a packet passes some hundred rules of instructions in the time that it takes to find the few
// records that it meets (0.2 ns a rule, docs/decisions/0015-bytecode.md), and records cost the verifier nothing.
const maxStraight = 1000

// maxRuns is how many tables of rules (see many) a class may have with other rules between them; where there
// would be more, all of its rules become records.
const maxRuns = 8

// minBetween is from how many compares on rules become records that stand between rules which cannot.
// Fewer are straight code with these: each piece is a call and a function more.
const minBetween = 48

// chain is the rule list of one class, or of several with the same list.
type chain struct {
	label     string
	classes   []ir.Class
	rules     []ir.Rule
	builtIn   int                   // slot of the first built-in rule
	uses      [field.NumFields]bool // fields that the list asks for
	looks     bool                  // a rule looks at the packet
	extension *extension
	pieces    []piece
	parts     []*chain // functions or records, tried in order until one decides
	records   bool     // a part that is records, from number start on
	start     uint32
}

// piece is rules in a row of a chain that are made in the same way.
type piece struct {
	rules   []ir.Rule
	records bool
}

// pieces chooses how the rules of a chain are made. What is built in is never records, so that chains whose
// other rules are the same share these.
func (c *compiler) pieces(ch *chain) []piece {
	n := slices.IndexFunc(ch.rules, func(r ir.Rule) bool { return r.Slot >= ch.builtIn })
	if n < 0 {
		n = len(ch.rules)
	}
	head, tail := ch.rules[:n], ch.rules[n:]
	var out []piece
	add := func(rules []ir.Rule, records bool) {
		if len(rules) == 0 {
			return
		}
		if k := len(out); k > 0 && !out[k-1].records && !records {
			out[k-1].rules = out[k-1].rules[:len(out[k-1].rules)+len(rules)] // they follow one another
			return
		}
		out = append(out, piece{rules, records})
	}
	addRecords := func(rules []ir.Rule) {
		whole := len(rules)
		for len(rules) > 0 {
			n, may := ir.Stretch(rules, action.MayBeBytecode)
			add(rules[:n], may && (n == whole || weight(rules[:n]) >= minBetween))
			rules = rules[n:]
		}
	}
	if c.all || runs(ch, head) > maxRuns {
		addRecords(head)
		head = nil
	}
	for len(head) > 0 {
		n, isRun := stretch(ch, head)
		if isRun || weight(head[:n]) <= maxStraight {
			add(head[:n], false)
		} else {
			addRecords(head[:n])
		}
		head = head[n:]
	}
	add(tail, false)
	return out
}

// stretch is how many rules from the start of a list on become a table, or, if not isRun, are before the next that do.
func stretch(ch *chain, rules []ir.Rule) (n int, isRun bool) {
	for i := 0; i < len(rules); {
		k := run(ch, rules[i:])
		if k >= minRun {
			if i == 0 {
				return k, true
			}
			return i, false
		}
		i += max(k, 1)
	}
	return len(rules), false
}

// runs counts the tables that a list of rules becomes.
func runs(ch *chain, rules []ir.Rule) (n int) {
	for len(rules) > 0 {
		k, isRun := stretch(ch, rules)
		if isRun {
			n++
		}
		rules = rules[k:]
	}
	return n
}

// weight estimates what rules take as instructions, in compares: a look-up of prefixes or endpoints in a table takes as many instructions
// as some dozen of them.
func weight(rules []ir.Rule) (n int) {
	const prefixTable = 24
	for i := range rules {
		n++
		for j := range rules[i].Conds {
			q := &rules[i].Conds[j]
			switch {
			case len(q.Pairs) > 0:
				n += min(2*len(q.Pairs), tableQuestions)
			case len(q.Prefixes) > maxPrefixes:
				n += prefixTable
			default:
				n += max(1, min(maxTree, len(q.Ranges)+len(q.Prefixes)))
			}
		}
	}
	return n
}

func (ch *chain) family() ir.Family { return ch.classes[0].Family }

// String names the packets that the chain judges.
func (ch *chain) String() string { return ch.classes[0].String() }

// shareChains gives each class its chain; classes whose lists ask the same share one.
func (c *compiler) shareChains() {
	for _, class := range ir.Classes() {
		if !c.target.meets(class) {
			continue
		}
		rules := c.prog.Lists[class.Index()]
		i := slices.IndexFunc(c.chains, func(ch *chain) bool {
			return ch.family() == class.Family && slices.EqualFunc(ch.rules, rules, sameRule)
		})
		if i < 0 {
			i = len(c.chains)
			c.chains = append(c.chains, c.newChain(fmt.Sprintf("chain_%d", class.Index()), rules))
		}
		c.chains[i].classes = append(c.chains[i].classes, class)
		c.chainOf[class.Index()] = c.chains[i]
	}
}

func (c *compiler) newChain(label string, rules []ir.Rule, classes ...ir.Class) *chain {
	ch := &chain{label: label, classes: classes, rules: rules, builtIn: c.prog.Policy.EssentialSlot(0), looks: c.extension.looks(rules), extension: c.extension}
	for i := range rules {
		for j := range rules[i].Conds {
			ch.use(&rules[i].Conds[j])
		}
	}
	return ch
}

func sameRule(a, b ir.Rule) bool { return a.Same(&b) }

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
			for j := range ch.rules[i].Conds {
				n += length(&ch.rules[i].Conds[j])
			}
		}
	}
	return n
}

// loadRegs fills the registers that a chain expects from struct key.
func (c *compiler) loadRegs(ch *chain) {
	for f, uses := range ch.uses {
		if reg, hot := hotRegister(field.Field(f)); uses && hot {
			at, n := c.fieldAt(field.Field(f))
			c.field(reg, at, sizeOf(n))
		}
	}
}

// emitChain emits a rule list inline; it ends in a jump to the verdict.
func (c *compiler) emitChain(ch *chain) {
	c.label(ch.label)
	c.beginCounts(ch.rules)
	c.emitRules(ch, ch.rules)
	// The last rule has no conditions: nothing jumps behind it.
	c.End()
}

// emitRules emits rules in order, in long runs as look-ups.
func (c *compiler) emitRules(ch *chain, rules []ir.Rule) {
	for len(rules) > 0 {
		n := run(ch, rules)
		if n >= minRun {
			c.many(ch, rules[:n])
		} else {
			n = max(n, 1)
			for i := range n {
				c.rule(ch, &rules[i])
			}
		}
		rules = rules[n:]
	}
}

// split parts a rule list so that no part asks more than maxQuestions; a run that becomes one
// look-up is not parted.
func split(ch *chain, rules []ir.Rule) (parts [][]ir.Rule) {
	first, asked := 0, 0
	for i := 0; i < len(rules); {
		n, asks := run(ch, rules[i:]), tableQuestions
		if n < minRun {
			n, asks = 1, questions(&rules[i])
		}
		if asked += asks; asked > maxQuestions && i > first {
			parts = append(parts, rules[first:i])
			first, asked = i, asks
		}
		i += n
	}
	return append(parts, rules[first:])
}

// emitFunctions makes functions and records of a rule list; chains share those that ask the same.
func (c *compiler) emitFunctions(ch *chain) {
	for _, p := range ch.pieces {
		if p.records {
			ch.parts = append(ch.parts, c.part(ch, p.rules, true))
			continue
		}
		for _, rules := range split(ch, p.rules) {
			ch.parts = append(ch.parts, c.part(ch, rules, false))
		}
	}
}

// part finds or makes the function or the records of rules.
func (c *compiler) part(ch *chain, rules []ir.Rule, records bool) *chain {
	known := &c.parts
	if records {
		known = &c.walked
	}
	for _, part := range *known {
		if part.family() == ch.family() && slices.EqualFunc(part.rules, rules, sameRule) {
			return part
		}
	}
	part := c.newChain(fmt.Sprintf("part_%d", len(*known)), rules, ch.classes...)
	part.records = records
	*known = append(*known, part)
	if records {
		c.walk(part)
	} else {
		c.emitFunction(part)
	}
	return part
}

// emitFunction emits a part of a rule list as a function of struct key's address. It returns the result
// (see there) of the rule that decided, or 0. It is global: the verifier walks it by itself.
func (c *compiler) emitFunction(part *chain) {
	c.inFunction = true
	defer func() { c.inFunction = false }()
	c.beginFunction(part.label, part.looks)
	c.beginCounts(part.rules)
	c.loadRegs(part)
	c.emitRules(part, part.rules)
	last := &part.rules[len(part.rules)-1]
	if len(last.Conds) == 0 && !slices.ContainsFunc(c.extension.of(last), asks) && last.Action.Decides() {
		c.End() // nothing jumps behind it
		return
	}
	c.emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// rule emits one rule: its questions, then what it does.
func (c *compiler) rule(ch *chain, r *ir.Rule) {
	next := c.fresh("next")
	for i := range r.Conds {
		c.cond(ch, &r.Conds[i], next)
	}
	c.emitBlocks(r, next)
	c.emitEffects(r)
	switch {
	case !r.Action.Decides():
	case c.separate:
		c.emit(asm.Mov.Imm32(asm.R0, int32(result(r))), asm.Return())
	default:
		c.decide(r)
	}
	c.label(next)
}

// enter leaves the fast path for the rules of a chain, whose fields lie in the registers, or in
// struct key where chains are functions.
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
	for i, part := range ch.parts {
		c.emit(
			asm.Mov.Reg(asm.R1, asm.R10),
			asm.Add.Imm(asm.R1, int32(envAt)),
		)
		if part.records {
			if c.anyLooks {
				c.context(asm.R3)
			}
			c.emit(asm.Mov.Imm32(asm.R2, int32(part.start)), asm.Call.Label(interpreter))
		} else {
			if part.looks {
				c.context(asm.R2)
			}
			c.emit(asm.Call.Label(part.label))
		}
		if i == len(ch.parts)-1 {
			c.emit(asm.Ja.Label("decided"))
			break
		}
		c.emit(asm.JNE.Imm(asm.R0, 0, "decided"))
	}
}

// cond emits one question; it falls through where the answer is yes.
func (c *compiler) cond(ch *chain, q *ir.Cond, no string) {
	switch q.Field.Info().Compare {
	case field.ByPrefix:
		c.address(ch, q, no)
	case field.ByPair:
		c.endpoint(ch, q, no)
	case field.ByMask:
		c.flags(q, no)
	case field.ByRange:
		c.number(q, no)
	default:
		panic(unknown(q.Field))
	}
}
