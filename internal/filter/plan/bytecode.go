package plan

import (
	"fmt"

	"levee/internal/filter/ir"
	"levee/internal/lang/field"
)

// Bytecode is rules that the interpreter walks: one function of the program, whatever their number.
// Two trees of cuts (see Cuts) say which few of the rules a packet meets, one of the rules that
// decide and one of those that count: a packet is decided first, and then counted by the rules that
// stand before the one that decided.
type Bytecode struct {
	Node
	Number    int
	Family    ir.Family
	Rules     []ir.Rule
	Asks      Fields
	Axes      []Axis
	Deciding  Cuts
	Counting  Cuts
	Questions int // of all rules, in compares

	Class ir.Class // of the packets, or one of them
}

func (*Bytecode) Kind() string    { return "bytecode" }
func (*Bytecode) Blocks() []Block { return nil }

// Interpreter holds what is shared by all bytecode of a program.
type Interpreter struct {
	Lookups   []BytecodeLookup  // functions that bytecode calls by number
	Endpoints []SetKey          // functions of dynamic sets of endpoints and services, by number
	Arms      []*Arm            // of the functions that have arms, ArmsEach of each
	Tables    map[ir.ListID]int // of Lookups, those of static sets
	Sets      map[SetKey]int    // of Lookups, those of dynamic sets of addresses
	Lists     map[ArmKey]int    // of Arms, those of lists of endpoints
	Extras    map[ExtraKey]int  // of Arms, the first of those that a rule asks besides
}

// BytecodeLookup is a function of an address or, if it has arms, of the decoded packet.
type BytecodeLookup struct {
	Set   SetKey // of a dynamic set, unless there is a table or arms
	Table *Table // of a static set
	IPv4  bool   // of addresses
	Arms  bool
	First int // of Arms
}

// Arm is code that bytecode calls by number: a look-up in a list of endpoints, or an Extra of a
// rule. Many of them are one function: functions of their own would soon be more than the kernel
// takes.
type Arm struct {
	Number   int
	Function int      // of Interpreter.Lookups
	Class    ir.Class // of the packets, for its family
	Lookup   *Lookup  // nil for what a rule asks besides
	Rule     *ir.Rule // that asks besides
	Extra    int      // which of it
	bound    int      // of its instructions
}

func (a *Arm) size() int {
	if a.Lookup != nil {
		return sizeArm + sizeTree
	}
	return sizeArm + a.bound
}

// ExtraKey finds an Extra of a rule of bytecode.
type ExtraKey struct{ Bytecode, Rule int } // numbers

// ArmKey finds an arm. One list may be asked for either side, and for ports as well as for
// protocols.
type ArmKey struct {
	List          ir.ListID
	Field, Number field.Field
}

// Bounds of what bytecode calls.
const (
	// manyPrefixes is from how many prefixes on a list has a table of package prefix, and a
	// function that searches it, instead of bounds that are searched by halving. Of these functions
	// there are at most maxTables.
	manyPrefixes = 200
	maxTables    = 32
	// ArmsEach counts the arms of a function. There are at most maxArms; a list of up to fewPairs
	// endpoints gets none once maxTables others have one, but is compared one by one.
	ArmsEach = 64
	maxArms  = 512
	fewPairs = 32
)

// Lookup returns the number of the function that a condition is asked by, if it is not bounds, and
// of its arm.
func (x *Interpreter) Lookup(p *Plan, c *ir.Cond, ip4 bool) (n, arm int, ok bool) {
	switch {
	case c.Dynamic():
		n, ok = x.Sets[SetKey{p.Places[c.Set].Map, ip4}]
	case c.Pairs != nil:
		if arm, ok = x.Lists[ArmKey{c.List, c.Field, c.Number}]; ok {
			n = x.Arms[arm].Function
		}
	case c.Prefixes != nil:
		n, ok = x.Tables[c.List]
	}
	return n, arm, ok
}

// add gives a function a number.
func (x *Interpreter) add(l BytecodeLookup) int {
	x.Lookups = append(x.Lookups, l)
	return len(x.Lookups) - 1
}

// addArm gives an arm a number, and a function.
func (x *Interpreter) addArm(a *Arm) int {
	a.Number = len(x.Arms)
	if a.Number%ArmsEach == 0 {
		x.add(BytecodeLookup{Arms: true, First: a.Number})
	}
	x.Arms = append(x.Arms, a)
	a.Function = len(x.Lookups) - 1
	for !x.Lookups[a.Function].Arms {
		a.Function--
	}
	return a.Number
}

// bytecode makes bytecode of rules, or finds it: chains whose rules are the same share it.
func (p *planner) bytecode(c *Chain, rules []ir.Rule, why string) *Bytecode {
	for _, b := range p.Bytecodes {
		if b.Family == c.Family() && sameRules(b.Rules, rules) {
			return b
		}
	}
	b := &Bytecode{Number: len(p.Bytecodes), Family: c.Family(), Rules: rules, Class: c.Classes[0]}
	b.What, b.Why = count(len(rules), "rule"), why
	b.Asks.askAll(rules)
	for i := range rules {
		r := &rules[i]
		for j := range r.Conds {
			p.asked(b, &r.Conds[j])
		}
		for j, e := range p.extension.of(r) {
			n := p.Interpreter.addArm(&Arm{Class: b.Class, Rule: r, Extra: j,
				bound: e.Instructions})
			if j == 0 {
				p.Interpreter.Extras[ExtraKey{b.Number, i}] = n
			}
		}
	}
	p.Bytecodes = append(p.Bytecodes, b)
	return b
}

// asked gives a condition of bytecode a function where it wants one.
func (p *planner) asked(b *Bytecode, c *ir.Cond) {
	x, ip4 := &p.Interpreter, b.Family == ir.IPv4
	switch {
	case c.Dynamic() && c.Number != 0:
		ip4 = ip4 || ofServices(c)
		p.setFunction(c.Set, ip4)
		key := SetKey{p.Places[c.Set].Map, ip4}
		if x.Endpoint(key) < 0 {
			x.Endpoints = append(x.Endpoints, key)
		}
	case c.Dynamic():
		p.setFunction(c.Set, ip4)
		key := SetKey{p.Places[c.Set].Map, ip4}
		if _, ok := x.Sets[key]; !ok {
			x.Sets[key] = x.add(BytecodeLookup{Set: key, IPv4: ip4})
		}
	case len(c.Prefixes) >= manyPrefixes:
		if _, ok := x.Tables[c.List]; !ok && len(x.Tables) < maxTables {
			x.Tables[c.List] = x.add(BytecodeLookup{Table: p.prefixTable(b.Family, c), IPv4: ip4})
		}
	case len(c.Pairs) > maxPairs:
		key := ArmKey{c.List, c.Field, c.Number}
		if _, ok := x.Lists[key]; ok {
			return
		}
		if n := len(x.Lists); n >= maxArms || n >= maxTables && len(c.Pairs) <= fewPairs {
			return
		}
		positive := *c // the bytecode says what the answer is to be
		positive.Not = false
		x.Lists[key] = x.addArm(&Arm{Class: b.Class, Lookup: p.lookup(b.Family, &positive)})
	}
}

// ofServices reports whether a condition asks for no address.
func ofServices(c *ir.Cond) bool {
	info := c.Field.Info()
	return info.Compare == field.ByPair && info.Address == field.None
}

// Endpoint returns the number of the function of a map of endpoints or services, -1 if there is
// none.
func (x *Interpreter) Endpoint(key SetKey) int {
	for i, k := range x.Endpoints {
		if k == key {
			return i
		}
	}
	return -1
}

// records returns how many records of bytecode a condition is at most.
func (p *planner) records(f ir.Family, c *ir.Cond) int {
	if _, _, ok := p.Interpreter.Lookup(p.Plan, c, f == ir.IPv4); ok || c.Dynamic() {
		return 1
	}
	switch {
	case c.Pairs != nil:
		return 3*len(c.Pairs) + 1
	case c.Prefixes != nil:
		return 2
	}
	return 1
}

// RecordBytes is the size of a record.
const RecordBytes = 32

// lay says how packets find the rules of bytecode, and what it costs.
func (p *planner) lay(b *Bytecode) {
	b.Axes = axesOf(b)
	forest := newForest(b)
	b.Counting = forest.grow(func(r *ir.Rule) bool { return !r.Action.Decides() })
	b.Deciding = forest.grow(func(r *ir.Rule) bool { return r.Action.Decides() })
	bytes := 8 * len(b.Rules)
	for i := range b.Rules {
		bytes += RecordBytes
		for j := range b.Rules[i].Conds {
			c := &b.Rules[i].Conds[j]
			bytes += RecordBytes * p.records(b.Family, c)
			if n := max(len(c.Ranges), len(c.Prefixes)); n > 1 {
				bytes += 32 * n // bounds
			}
		}
	}
	b.Cost.Bytes = bytes + (RecordBytes+8)*(len(b.Counting.Nodes)+len(b.Deciding.Nodes))
	depth, worst := max(b.Counting.Depth, b.Deciding.Depth), b.Counting.Worst+b.Deciding.Worst
	b.Questions = weight(b.Rules)
	b.Why += fmt.Sprintf("; a packet passes up to %d cuts and meets %d rules at most, about %d ns",
		depth, worst, 4*(depth+worst*max(1, b.Questions/len(b.Rules))))
}
