package plan

import (
	"fmt"
	"math/bits"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/filter/prefix"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Plan is the parts of a program that is to be.
type Plan struct {
	Program  *ir.Program
	Target   Target
	CPUs     int // rows of counters, a power of two
	RowBytes int
	Slots    []policy.Slot // of the policy

	Chains  []*Chain
	Within  []*Chain // of packets within tunnels; their blocks are functions
	ChainOf [ir.NumClasses]*Chain
	Cost    Cost
	Ledger  Ledger

	// What chains share, each in order of the first that has it.
	Functions     []*Function
	Bytecodes     []*Bytecode
	Interpreter   Interpreter
	Tables        []*Table
	NameTables    []*Table // by the numbers of the policy's lists of names
	Deepest       int      // labels of a name of these, at most
	Trees         []*Tree
	Pools         [ir.IPv6 + 1]*Pool
	SetFunctions  []SetFunction
	SetFunctionOf map[SetKey]int
	Places        map[*policy.Set]SetPlace // of all dynamic sets
	Limits        []Limit                  // in the order of their rules
	Cookies       []Cookie                 // likewise
	Greylists     []Greylist               // likewise
	Logs          []Log                    // likewise
	Searches      []*Search                // of payloads
	Echoes        []Echo                   // proofs, where rules ask whose flows are proven
	Fragments     bool                     // a rule follows them
	State         *state.Use               // what it remembers

	readsMessages bool  // a rule asks what DNS messages have
	keysByName    bool  // a limit has budgets by their names
	Out           *Plan // of what leaves; nil where nothing is said of it
}

// New plans the program of a lowered policy. The error is a limit of the kernel's that the policy
// does not keep.
func New(prog *ir.Program, t Target) (*Plan, error) { return NewWith(prog, t, Extension{}) }

// NewWith plans the program of a lowered policy whose rules ask or do what the language does not
// have.
func NewWith(prog *ir.Program, t Target, x Extension) (*Plan, error) {
	if t.Link == packet.L3 {
		if asks := prog.Policy.Ethernet(); len(asks) > 0 {
			return nil, fmt.Errorf(
				"line %d asks for %s, which packets without an Ethernet header lack",
				asks[0].Rule.Pos.Line, asks[0].Term.Field.Info().Name)
		}
	}
	if t.Hook.OfService() && !t.Leaves {
		if not := prog.Policy.NotOfService(t.Hook == Socket); len(not) > 0 {
			return nil, fmt.Errorf("line %d: a service has no use for %s", not[0].Pos.Line, not[0])
		}
	}
	slots := prog.Policy.Slots()
	p := &planner{
		Plan: &Plan{
			Program: prog, Target: t, Slots: slots,
			CPUs:     1 << bits.Len(uint(max(t.CPUs, 1)-1)),
			RowBytes: RowBytes(len(slots)),
			Places:   placesOf(prog.Policy),
			State:    asks(prog.Policy, t),
		},
		prefixes: map[ir.ListID]*Table{}, ethernet: map[string]*Table{}, bits: map[string]*Table{},
		endpoints: map[ir.ListID]*Tree{}, extension: x,
	}
	if err := p.checkCounters(); err != nil {
		return nil, err
	}
	p.findLimits()
	p.nameTables()
	p.findLogs()
	p.findSearches()
	p.findCookies()
	p.findGreylists()
	p.findEchoes()
	p.Fragments = !t.Plain && p.Program.Policy.Has(action.Track)
	p.shareChains()
	p.fillUse()
	if err := p.State.SetEchoes(p.forms()); err != nil {
		return nil, p.errorf("%w", err)
	}
	if err := p.State.SetStreams(p.streamPorts()); err != nil {
		return nil, p.errorf("%w", err)
	}
	if t.Leaves {
		p.State.Room = t.Connections
	} else if err := p.State.Fit(prog.Policy.MaxConnections, t.Memory); err != nil {
		return nil, p.errorf("%w", err)
	}
	if err := p.shape(); err != nil {
		return nil, err
	}
	p.fill()
	p.costs()
	p.number()
	if err := p.enter(); err != nil {
		return nil, err
	}
	if prog.Out != nil && t.judgesLeaving() {
		side := t.leaving()
		side.LogsBefore, side.Connections = len(p.Logs), p.State.Room
		out, err := New(prog.Out, side)
		if err != nil {
			return nil, fmt.Errorf("what leaves: %w", err)
		}
		p.Out = out
	}
	return p.Plan, nil
}

// planner makes a plan.
type planner struct {
	*Plan
	prefixes  map[ir.ListID]*Table // that are built, also those that no block looks into in the end
	ethernet  map[string]*Table    // by ranges
	bits      map[string]*Table    // by contents
	endpoints map[ir.ListID]*Tree
	extension Extension

	askedNames []*policy.Set // dynamic sets of names that rules ask

	mainSize     int // instructions of the main function
	treesInPlace int
}

// restart forgets what blocks asked for that are made anew.
func (p *planner) restart() {
	p.Functions, p.Bytecodes = nil, nil
	p.SetFunctions, p.SetFunctionOf = nil, map[SetKey]int{}
	for _, s := range p.askedNames {
		p.setFunction(s, false)
	}
	p.Interpreter = Interpreter{
		Tables: map[ir.ListID]int{}, Sets: map[SetKey]int{}, Lists: map[ArmKey]int{},
		Extras: map[ExtraKey]int{},
	}
}

// count counts functions and instructions of the whole, at most.
func (p *planner) count() (functions, size int) {
	functions, size = p.sizeWithin()
	functions, size = functions+1, size+p.mainSize
	if !p.Target.Plain {
		functions++
		size += decoderSize(p.Target)
	}
	for _, f := range p.Functions {
		functions++
		size += f.bound
	}
	kept := p.State.Bound()
	functions, size = functions+kept.Functions, size+kept.Instructions
	functions += 2 * (len(p.SetFunctions) + len(p.Searches)) // and that of a stream with its rounds
	size += sizeSearch * len(p.Searches)
	read, reads := p.sizeMessages()
	functions, size = functions+read, size+reads
	told, tells := p.sizeTelling()
	functions, size = functions+told, size+tells
	for _, f := range p.SetFunctions {
		size += sizeLookup
		if f.Type == policy.Addresses && prefix.HasBulk(f.Room) {
			size += sizeBulk
		}
	}
	for _, walked := range p.walked() {
		if walked {
			functions += 2
			size += sizeFollow
		}
	}
	if len(p.Bytecodes) == 0 {
		return functions, size
	}
	x := &p.Interpreter
	functions += 4
	size += sizeEngine + sizeAsked*(len(x.Lookups)+len(x.Endpoints))
	for _, l := range x.Lookups {
		if l.Table != nil {
			functions++
			size += sizeAddress + l.Table.Prefixes.Instructions()
		}
		if l.Arms {
			functions++
		}
	}
	for _, a := range x.Arms {
		size += a.size()
	}
	return functions, size
}

// walked returns the families in which some block walks a rule tree.
func (p *planner) walked() (families [ir.IPv6 + 1]bool) {
	note := func(b Block) {
		switch b := b.(type) {
		case *RuleTree:
			families[b.Family] = true
		case *Lookup:
			if b.endpoints() {
				families[b.Family] = true
			}
		}
	}
	for _, c := range slices.Concat(p.Chains, p.Within) {
		for _, b := range c.Do {
			walk(b, note)
		}
	}
	for _, a := range p.Interpreter.Arms {
		if a.Lookup != nil {
			note(a.Lookup)
		}
	}
	return families
}

// walk goes through a block and all in it.
func walk(b Block, do func(Block)) {
	do(b)
	for _, in := range b.Blocks() {
		walk(in, do)
	}
}

// fill builds the trees of rules and endpoints, lists the tables that are used, and says how
// packets find their way through bytecode.
func (p *planner) fill() {
	table := map[*Table]bool{}
	use := func(t *Table) {
		if t != nil && !table[t] {
			table[t] = true
			p.Tables = append(p.Tables, t)
		}
	}
	done := map[Block]bool{}
	var fill func(c *Chain, b Block)
	look := func(class ir.Class, l *Lookup) {
		use(l.Table)
		if l.endpoints() {
			p.growEndpoints(l, class)
			l.InPlace = p.inPlace(l.Tree)
		}
	}
	fill = func(c *Chain, b Block) {
		if done[b] {
			return
		}
		switch b := b.(type) {
		case *Lookup:
			look(c.Classes[0], b)
		case *RuleTree:
			p.growTree(c, b)
			b.InPlace = p.inPlace(b.Tree)
		case *Function:
			done[b] = true
		case *Bytecode:
			done[b] = true
			p.lay(b)
		}
		for _, in := range b.Blocks() {
			fill(c, in)
		}
	}
	for _, c := range slices.Concat(p.Chains, p.Within) {
		for _, b := range c.Do {
			fill(c, b)
		}
	}
	for _, l := range p.Interpreter.Lookups {
		use(l.Table)
	}
	for _, a := range p.Interpreter.Arms {
		if a.Lookup != nil {
			look(a.Class, a.Lookup)
		}
	}
	for _, s := range p.Searches {
		use(s.Table)
	}
	for i, t := range p.Tables {
		t.Name = t.label(i)
	}
	for i := range p.Limits {
		if t := p.Limits[i].rates(p.nameOf(p.Limits[i].Slot)); t != nil {
			p.Tables = append(p.Tables, t)
		}
	}
}

// number gives all blocks their numbers.
func (p *planner) number() {
	var number func(b Block, id string)
	number = func(b Block, id string) {
		n := b.About()
		if n.ID != "" {
			return
		}
		n.ID = ID(id)
		for i, in := range b.Blocks() {
			number(in, fmt.Sprintf("%s.%d", id, i+1))
		}
	}
	for i, c := range slices.Concat(p.Chains, p.Within) {
		number(c, fmt.Sprint(i+1))
	}
}
