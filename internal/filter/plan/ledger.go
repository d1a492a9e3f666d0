package plan

import (
	"github.com/cilium/ebpf"

	"levee/internal/filter/endpoint"
	"levee/internal/filter/names"
	"levee/internal/filter/prefix"
	"levee/internal/filter/state"
	"levee/internal/lang/policy"
)

// Ledger adds up the functions, instructions and maps of the whole program.
type Ledger struct {
	Functions    int // of maxFunctions
	Instructions int // at most, of maxInstructions
	Maps         []Map
}

// Map is memory of a program.
type Map struct {
	state.Map         // Bytes at most, where bytecode is in it
	Sets      *SetMap // of dynamic sets, else nil
}

// SetMap says how the memory of dynamic sets is laid out.
type SetMap struct {
	Type policy.SetType
	Room int // entries of each
	Sets int
}

// Spec describes the map, whose inner maps' values are the memory.
func (s *SetMap) Spec(name string) (spec *ebpf.MapSpec, err error) {
	switch s.Type {
	case policy.Addresses:
		spec, err = prefix.DynamicSpec(name, s.Room)
	case policy.Names:
		spec, err = names.Spec(name, s.Room)
	default:
		spec, err = endpoint.Spec(name, s.Room)
	}
	if err == nil {
		spec.MaxEntries = max(spec.MaxEntries, uint32(s.Sets))
	}
	return spec, err
}

// Names of maps. What one holds says its Identity.
const (
	CountersMap   = "counters"
	TraceMap      = "trace"
	TrialMap      = "trial"
	PreviousMap   = "previous"
	ClockMap      = "clock"
	TurnMap       = "turn"
	GenerationMap = "generation"
	BehindMap     = "behind"
	TablesMap     = "tables" // more than one map if it is too much for one
)

// enter writes the ledger. The error is a set that is too large for the kernel.
func (p *planner) enter() error {
	l := &p.Ledger
	l.Functions, l.Instructions = p.count()
	p.Cost.Instructions = l.Instructions
	add := func(name string, bytes int, what string, holds state.Contents, life state.Lifetime) {
		l.Maps = append(l.Maps, Map{Map: state.Map{Name: name, Bytes: bytes, For: what,
			Holds: state.Identity{What: holds}, Lifetime: life}})
	}
	add(CountersMap, p.CPUs*p.RowBytes, "counters of all rules, a row for each CPU",
		state.HoldsCounters, state.Pinned)
	if p.Target.Trace {
		add(TraceMap, TraceBytes(), "the slot that decided last", state.HoldsLastSlot,
			state.Private)
	}
	if p.Target.Trial {
		add(TrialMap, 8, "until when the policy is on trial", state.HoldsDeadline, state.Pinned)
		add(PreviousMap, 4, "the program that judges then", state.HoldsPrevious, state.Pinned)
	}
	if p.Target.TakesTurns() {
		add(TurnMap, state.TurnBytes, "which generation judges what leaves", state.HoldsTurn,
			state.Attached)
		add(GenerationMap, 8, "which generation this is", state.HoldsGeneration, state.Private)
	}
	if p.Target.HandsOn() {
		add(BehindMap, 4, "the program of a shadow, for what leaves", state.HoldsBehind,
			state.Pinned)
	}
	if p.Target.Clock {
		add(ClockMap, 8, "the time", state.HoldsClock, state.Private)
	}
	p.enterRoutes()
	p.enterSenders()
	if p.readsMessages {
		l.Maps = append(l.Maps, Map{Map: state.Map{Name: names.WorkMap,
			Bytes: names.WorkBytes, For: "what reading DNS messages works on, for each CPU",
			Holds: state.Identity{What: state.HoldsNameWork}, Lifetime: state.Private,
			Spec: names.WorkSpec()}})
	}
	for _, row := range p.State.In() {
		for _, m := range row.Maps(p.State) {
			l.Maps = append(l.Maps, Map{Map: m})
		}
	}
	if n := p.tableBytes(); n > 0 {
		l.Maps = append(l.Maps, Map{Map: state.Map{Name: TablesMap, Bytes: n,
			For:   "tables that programs only read",
			Holds: state.Identity{What: state.HoldsTables, Name: TablesMap}}})
	}
	if err := p.enterSets(); err != nil {
		return err
	}
	for _, m := range l.Maps {
		p.Cost.Bytes += m.Bytes
	}
	return nil
}

// enterSets writes the maps of dynamic sets, also of those that no rule asks for now: entries are
// the operator's, and outlive rules.
func (p *planner) enterSets() error {
	l := &p.Ledger
	at := map[string]int{} // index of a map
	for _, s := range p.Program.Policy.Sets {
		place, ok := p.Places[s]
		if !ok {
			continue
		}
		i, known := at[place.Map]
		if !known {
			i = len(l.Maps)
			at[place.Map] = i
			m := Map{Map: state.Map{Name: place.Map, For: p.WhyPlace(place)}}
			m.Sets = &SetMap{Type: s.Type, Room: place.Room}
			if p.Shared() {
				// The next program may have other sets, at other numbers: what it continues is each
				// set.
				m.Holds = state.Identity{What: state.HoldsDynamicSets, Name: place.Map}
				m.Lifetime = state.Pinned
			} else {
				m.Holds = state.Identity{What: state.HoldsDynamicSet, Name: s.Name,
					Kind: s.Type.String()}
				m.Lifetime = state.Carried
			}
			l.Maps = append(l.Maps, m)
		}
		m := &l.Maps[i]
		m.Sets.Sets++
		spec, err := m.Sets.Spec(m.Name)
		if err != nil {
			return p.errorf("set %s: %w", s.Name, err)
		}
		m.Bytes += int(spec.InnerMap.ValueSize)
	}
	return nil
}

// cacheLine is the alignment of tables.
const cacheLine = 64

// tableBytes returns what all tables take, one behind the other.
func (p *planner) tableBytes() (n int) {
	add := func(bytes int) { n = (n+cacheLine-1)&^(cacheLine-1) + bytes }
	for _, t := range p.Tables {
		add(t.Bytes)
	}
	if p.readsMessages {
		add(names.KeysBytes)
	}
	for _, t := range p.NameTables {
		if t != nil {
			add(t.Bytes)
		}
	}
	if len(p.Bytecodes) > 0 {
		add(RecordBytes + bytecodeTables*cacheLine) // the end of all lists
	}
	for _, b := range p.Bytecodes {
		add(b.Cost.Bytes)
	}
	for _, pool := range p.Pools {
		if pool != nil {
			add(pool.Size())
			add(pool.PortsSize())
		}
	}
	return n
}

// bytecodeTables is the number of tables of all bytecode together.
const bytecodeTables = 4
