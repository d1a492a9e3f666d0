package codegen

import (
	"slices"

	"github.com/cilium/ebpf"
)

// MapUse is a map of a program: what it holds, and how long that lives. The loader takes what it does
// with a map from here; names are for people.
type MapUse struct {
	Name     string   `json:"name"` // in Spec.Maps
	Holds    Identity `json:"holds"`
	Lifetime Lifetime `json:"lifetime"`
}

// Identity says what a map holds. Maps of two programs with the same identity hold the same thing.
type Identity struct {
	What Contents `json:"what"`
	Name string   `json:"name,omitempty"` // which one, where a program may have several
	Kind string   `json:"kind,omitempty"` // of one name: what is of another kind is another thing
}

// Contents is a kind of thing that maps hold.
type Contents string

const (
	// Tables are what programs only read.
	Tables Contents = "tables"
	// Counters are an array of 1 entry, BPF_F_MMAPABLE: [CPUs rounded up to a power of two][RowBytes].
	Counters Contents = "counters"
	// LastSlot is an array of 1 entry, BPF_F_MMAPABLE: u32 slot of the last decision (Target.Trace).
	LastSlot Contents = "last slot"
	// Deadline is an array of 1 entry, BPF_F_MMAPABLE: u64 in jiffies (Target.Trial).
	Deadline Contents = "deadline"
	// Previous is a program array of 1 entry: the program that judges after the deadline; packets pass
	// if it is empty (Target.Trial).
	Previous Contents = "previous program"
	// DynamicSet is an array of maps of 1 entry: the memory of one dynamic set.
	DynamicSet Contents = "dynamic set"
	// DynamicSets are an array of maps: the memories of many dynamic sets, see Program.Places.
	DynamicSets Contents = "dynamic sets"
)

// Lifetime says how long a map lives.
type Lifetime string

const (
	// Private maps are gone with their program, and nobody else opens them.
	Private Lifetime = ""
	// Pinned maps are kept with their program: later commands open them for as long as it may judge
	// packets. The next program has its own.
	Pinned Lifetime = "pinned"
	// Carried maps are pinned, and the map of the same identity in the next program continues what is
	// in them. What the next program does not have is gone with the last that had it.
	Carried Lifetime = "carried"
	// Attached maps belong to the interface: one of an identity serves every program from the first that
	// has it on, until the interface is taken down.
	Attached Lifetime = "attached"
)

// IsPinned reports whether commands find the map when the one that made it has ended.
func (l Lifetime) IsPinned() bool { return l == Pinned || l.Continues() }

// Continues reports whether the map of the same identity in the next program continues this one.
func (l Lifetime) Continues() bool { return l == Carried || l == Attached }

// MapOf gives the name of the map that holds something of which a program has one.
func (p *Program) MapOf(what Contents) (name string, ok bool) { return MapOf(p.Maps, what) }

// MapOf finds in a ledger the map that holds something of which a program has one.
func MapOf(ledger []MapUse, what Contents) (name string, ok bool) {
	i := slices.IndexFunc(ledger, func(m MapUse) bool { return m.Holds.What == what })
	if i < 0 {
		return "", false
	}
	return ledger[i].Name, true
}

// addMap gives the program a map, once.
func (c *compiler) addMap(spec *ebpf.MapSpec, holds Identity, l Lifetime) {
	if c.maps[spec.Name] == nil {
		c.maps[spec.Name] = spec
		c.ledger = append(c.ledger, MapUse{spec.Name, holds, l})
	}
}
