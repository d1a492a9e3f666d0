// Package state is the table of what programs remember. A row says of one memory which maps it
// lies in and how long these live, what it takes of the kernel's limits, which functions and
// programs work on it, and how it begins. The planner, the code generator and the data plane
// iterate over the rows. The package opens, pins and loads nothing, and knows no rules.
package state

import (
	"github.com/cilium/ebpf"

	"levee/internal/filter/assembler"
	"levee/internal/filter/flow"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Use is what the program of a policy asks of memories. The planner fills it in.
type Use struct {
	CPUs  int         // a power of two
	HZ    uint64      // jiffies a second
	Link  packet.Link // what packets begin with
	TCX   bool        // the context is an skb
	Frags bool        // a packet may not lie in its first buffer as a whole
	Plain bool        // without the careful decoder

	Tracks     bool      // rules ask for connections
	Room       flow.Room // for them: see Fit
	Protocols  []uint8   // of the packets that are looked up, each family by itself
	Limits     []Limit
	Logs       []uint32 // their numbers, package logging
	Cookies    int      // that answer SYNs
	Proves     bool     // handshakes that are seen prove who is there
	AsksProven bool     // rules ask who has proven himself
	Fragments  int      // functions that follow them, 0 if no rule does
	Diverts    int      // families with packets that are diverted
	// JudgedBytes is the row of counters of the policy in force, 0 in a policy that is no shadow.
	JudgedBytes int
}

// Limit is a limit that packets may come to.
type Limit struct {
	*policy.Limit
	ID   string // of its rule
	Name string // of its rule, for people
	Map  string // with its budgets
}

// Map is a map of a row.
type Map struct {
	Name     string
	Bytes    int // of all CPUs
	For      string
	Holds    Identity
	Lifetime Lifetime
	Spec     *ebpf.MapSpec // nil: one piece of zeroed memory, Memory
}

// Memory is a map that is one piece of zeroed memory, addressed directly by the program.
func Memory(name string, size int) *ebpf.MapSpec {
	const mmapable = 1 << 10 // BPF_F_MMAPABLE: user space needs no system call to read and write
	return &ebpf.MapSpec{
		Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1,
		Flags: mmapable,
	}
}

// Bound is what functions take of the kernel's limits, at most.
type Bound struct{ Functions, Instructions int }

// Add adds what others take.
func (b *Bound) Add(o Bound) {
	b.Functions += o.Functions
	b.Instructions += o.Instructions
}

// Emission is what functions are emitted into, and what they are given.
type Emission struct {
	*assembler.Builder
	*Use
	Context assembler.Param
	Key     assembler.Param // struct key of bpf/parse.h
}

// Row is one memory.
type Row struct {
	Name string   // for people
	What Contents // of its first map, by which it is found
	// Used reports whether a program has it. Nothing else of the row is asked otherwise.
	Used  func(u *Use) bool
	Maps  func(u *Use) []Map
	Bound func(u *Use) Bound
	Emit  func(e *Emission) error // its functions
	// Beside is its program at another place than the one that judges, nil if it has none.
	Beside *Program
	// Shared is what interfaces that have the policy as one have one of, for all of them.
	Shared []Contents
	// Head is the beginning of the memory, which Seed writes: the key of its hashes, and the times
	// that programs go by. A memory without Seed begins with zeroes.
	Head int
	Seed func(head []byte, hz uint64)
	// Tell reads the memory of one map into what all tell, nil where that is told another way:
	// then Elsewhere says by whom.
	Tell      func(r *Reading, to *Memories)
	Values    []Value
	Lines     func(of *Memories, dev string) []Line
	Elsewhere string
}

// Line is a memory in words.
type Line struct {
	Name   string // in levee top
	Live   int    // what is in it now
	Now    string // in levee top
	Key    string // in levee status, "" where a table shows it
	Status string
}

// Program is a program beside the one that judges.
type Program struct {
	Name string
	At   Point
	Spec func(u *Use) (*ebpf.ProgramSpec, error)
}

// Of is the row of what a map holds, nil if that is no memory of the table.
func Of(what Contents) *Row {
	for i := range Table {
		if Table[i].What == what {
			return &Table[i]
		}
	}
	return nil
}

// Shared is what interfaces that have a policy as one share.
func Shared() (all []Contents) {
	for i := range Table {
		all = append(all, Table[i].Shared...)
	}
	return all
}

// Values are the numbers that all rows tell.
func Values() (all []Value) {
	for i := range Table {
		all = append(all, Table[i].Values...)
	}
	return all
}

// Words are the lines of all rows, on an interface.
func (m *Memories) Words(dev string) (all []Line) {
	for i := range Table {
		if row := &Table[i]; row.Lines != nil {
			all = append(all, row.Lines(m, dev)...)
		}
	}
	return all
}

// In are the rows that a program has.
func (u *Use) In() (rows []*Row) {
	for i := range Table {
		if Table[i].Used(u) {
			rows = append(rows, &Table[i])
		}
	}
	return rows
}

// Bound is what the functions of all memories take.
func (u *Use) Bound() (all Bound) {
	for _, r := range u.In() {
		all.Add(r.Bound(u))
	}
	return all
}
