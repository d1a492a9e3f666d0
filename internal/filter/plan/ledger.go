package plan

// Ledger is what the whole program takes of what the kernel gives.
type Ledger struct {
	Functions    int // of maxFunctions
	Instructions int // at most, of maxInstructions
	Maps         []Map
}

// Map is memory of a program.
type Map struct {
	Name  string
	Bytes int // at most, where bytecode is in it
	For   string
}

// Names of maps.
const (
	CountersMap = "counters" // array, 1 entry, BPF_F_MMAPABLE: [CPUs rounded up to a power of two][RowBytes]
	TraceMap    = "trace"    // array, 1 entry, BPF_F_MMAPABLE: u32 slot of the last decision (Target.Trace)
	TrialMap    = "trial"    // array, 1 entry, BPF_F_MMAPABLE: u64 deadline in jiffies (Target.Trial)
	PreviousMap = "previous" // prog array, 1 entry: judged by after the deadline; pass if empty (Target.Trial)
	TablesMap   = "tables"   // all that programs only read, more than one map if it is too much for one
)

// enter writes the ledger. The error is a set that the kernel has no room for.
func (p *planner) enter() error {
	l := &p.Ledger
	l.Functions, l.Instructions = p.count()
	p.Cost.Instructions = l.Instructions
	l.Maps = append(l.Maps, Map{CountersMap, p.CPUs * p.RowBytes, "counters of all rules, a row for each CPU"})
	if p.Target.Trace {
		l.Maps = append(l.Maps, Map{TraceMap, 8, "the slot that decided last"})
	}
	if p.Target.Trial {
		l.Maps = append(l.Maps, Map{TrialMap, 8, "until when the policy is on trial"}, Map{PreviousMap, 4, "the program that judges then"})
	}
	if n := p.tableBytes(); n > 0 {
		l.Maps = append(l.Maps, Map{TablesMap, n, "tables that programs only read"})
	}
	shared := map[string]int{} // index of a map of sets
	for _, s := range p.Program.Policy.Sets {
		place, ok := p.Places[s]
		if !ok {
			continue
		}
		spec, err := SetSpec(s.Type, place)
		if err != nil {
			return p.errorf("set %s: %w", s.Name, err)
		}
		i, known := shared[place.Map]
		if !known {
			i = len(l.Maps)
			shared[place.Map] = i
			l.Maps = append(l.Maps, Map{Name: place.Map, For: p.WhyPlace(place)})
		}
		l.Maps[i].Bytes += int(spec.InnerMap.ValueSize)
	}
	for _, m := range l.Maps {
		p.Cost.Bytes += m.Bytes
	}
	return nil
}

// tableBytes is what all tables take together.
func (p *planner) tableBytes() (n int) {
	for _, t := range p.Tables {
		n += t.Bytes
	}
	for _, pool := range p.Pools {
		if pool != nil {
			n += pool.Size() + pool.PortsSize()
		}
	}
	for _, b := range p.Bytecodes {
		n += b.Cost.Bytes
	}
	return n
}
