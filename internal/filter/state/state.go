// Package state is the table of what programs remember. A row says of one memory which maps it
// lies in and how long these live, what it takes of the kernel's limits, which functions and
// programs work on it, and how it begins. The planner, the code generator and the data plane
// iterate over the rows. The package opens, pins and loads nothing, and knows no rules.
package state

import (
	"cmp"

	"github.com/cilium/ebpf"

	"levee/internal/filter/assembler"
	"levee/internal/filter/price"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
)

// Map is a map of a row.
type Map struct {
	Name     string
	Bytes    int // of all CPUs
	For      string
	Holds    Identity
	Lifetime Lifetime
	Spec     *ebpf.MapSpec // nil: one piece of zeroed memory, Memory
}

// Memory returns a map that is one piece of zeroed memory, addressed directly by the program.
func Memory(name string, size int) *ebpf.MapSpec {
	const mmapable = 1 << 10 // BPF_F_MMAPABLE: user space needs no system call to read and write
	return &ebpf.MapSpec{
		Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1,
		Flags: mmapable,
	}
}

// Bound counts functions and instructions against the kernel's limits.
type Bound struct{ Functions, Instructions int }

// Add adds what others take.
func (b *Bound) Add(o Bound) {
	b.Functions += o.Functions
	b.Instructions += o.Instructions
}

// Emission holds the program into which functions are emitted, and their parameters.
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
	Emit  func(e *Emission) error // its functions; both are nil without these
	// Calls are the effects by which packets come to it.
	Calls []Call
	// Answer is a field of packets that it tells, nil if it tells none, or one that needs more than
	// the source.
	Answer *Answer
	// Beside is its program at another hook than the one that judges, nil without one.
	Beside *Program
	// Shared lists the contents of which interfaces with one policy have one for all.
	Shared []Contents
	// OfShadow says that a shadow has it, and not the policy in force.
	OfShadow bool
	// Lent says that a shadow looks into the memory of the policy in force, and changes nothing.
	Lent bool
	// Head is the length in bytes of the memory's beginning, which Seed writes: the key of its
	// hashes, and the times that programs use. A memory without Seed begins with zeroes.
	Head int
	Seed func(head []byte, hz uint64)
	// SetClock sets the time, in jiffies, that the program takes for now. Only tests have such a
	// clock.
	SetClock func(head []byte, jiffies uint64)
	// Carry moves the contents of a former program's memory, which has another shape, into the new
	// one. A row without Carry begins anew then.
	Carry func(c *Carrying) Moving
	// Older is of a memory that has to know what was there before it.
	Older *Older
	// Room returns how much the memory has room for, and In the field of check's report for it. A
	// row without In reports its room with each rule.
	Room func(u *Use) Room
	In   func(to *Rooms) **Room
	// Tell reads the memory of the first map into what all tell, or the entries of one without.
	// Where there are no words for people, Elsewhere says which command tells them.
	Tell      func(r *Reading, to *Memories)
	Values    []Value
	Lines     func(of *Memories, dev string) []Line
	Elsewhere string
}

// Call is an effect of rules. Instructions that call functions of a memory stand where the rule
// does.
type Call struct {
	Action action.Action
	Size   int           // of the instructions, at most
	Time   price.Time    // of a packet that the rule matches, as they were measured
	Asks   []field.Field // that the instructions read, besides those of the match
}

// Answer is a question about the source of packets that a memory answers before their rules. The
// function of the label takes the source as package cookie has it, and returns 0 or 1.
type Answer struct {
	Field field.Field
	Label string
	Size  int     // of the instructions that call it, at most
	Time  float64 // of waiting
}

// Answers lists the answers that a program has to ask for.
func Answers(asked func(field.Field) bool) (all []*Answer) {
	for i := range Table {
		if a := Table[i].Answer; a != nil && asked(a.Field) {
			all = append(all, a)
		}
	}
	return all
}

// Room is the number of entries that fit a memory.
type Room struct {
	Room  int    `json:"room"` // for so many
	Bytes int    `json:"bytes"`
	Says  string `json:"-"` // with the room for %d
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
	Nth  int // of the programs at its point: filters of tc are told apart by it
	// Lost names the knowledge that ends once somebody else has taken the program away from egress.
	Lost string
	// Spec makes it; nil is that a use needs none.
	Spec func(u *Use) (*ebpf.ProgramSpec, error)
}

// At returns where a program of a row beside the one that judges meets packets, "" if none has the
// name.
func At(program string) Point { return named(program).At }

// Nth returns which it is of the programs at its point.
func Nth(program string) int { return named(program).Nth }

// Lost returns what is not known, or done, any more without a program at egress. One that no row
// names stands for the one that notes connections.
func Lost(program string) string {
	if program == LeavingProgram {
		return "what leaves is judged by nobody"
	}
	return cmp.Or(named(program).Lost, connections.Beside.Lost)
}

func named(program string) Program {
	for i := range Table {
		if b := Table[i].Beside; b != nil && b.Name == program {
			return *b
		}
	}
	return Program{}
}

// Of returns the row of what a map holds, nil if that is no memory of the table.
func Of(what Contents) *Row {
	for i := range Table {
		if Table[i].What == what {
			return &Table[i]
		}
	}
	return nil
}

// Shared returns what interfaces that have a policy as one share.
func Shared() (all []Contents) {
	for i := range Table {
		all = append(all, Table[i].Shared...)
	}
	return all
}

// Values returns the numbers that all rows tell.
func Values() (all []Value) {
	for i := range Table {
		all = append(all, Table[i].Values...)
	}
	return all
}

// Words returns the lines of all rows, on an interface.
func (m *Memories) Words(dev string) (all []Line) {
	for i := range Table {
		if row := &Table[i]; row.Lines != nil {
			all = append(all, row.Lines(m, dev)...)
		}
	}
	return all
}

// In returns the rows that a program has.
func (u *Use) In() (rows []*Row) {
	for i := range Table {
		if Table[i].Used(u) {
			rows = append(rows, &Table[i])
		}
	}
	return rows
}

// Keeps reports whether the program has the memory of a row.
func (u *Use) Keeps(what Contents) bool { return Of(what).Used(u) }

// Bound returns what the functions of all memories take.
func (u *Use) Bound() (all Bound) {
	for _, r := range u.In() {
		if r.Bound != nil {
			all.Add(r.Bound(u))
		}
	}
	return all
}
