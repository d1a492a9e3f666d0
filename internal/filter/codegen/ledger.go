package codegen

import (
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/filter/state"
)

// MapUse is a map of a program: what it holds, and how long that lives. The loader takes what it
// does with a map from here; names are for people.
type MapUse struct {
	Name     string   `json:"name"` // in Spec.Maps
	Holds    Identity `json:"holds"`
	Lifetime Lifetime `json:"lifetime"`
}

// What maps hold, how long they live, and where programs meet packets, says package state.
type (
	Identity = state.Identity
	Contents = state.Contents
	Lifetime = state.Lifetime
	Point    = state.Point
)

const (
	Tables      = state.HoldsTables
	Counters    = state.HoldsCounters
	LastSlot    = state.HoldsLastSlot
	Deadline    = state.HoldsDeadline
	Previous    = state.HoldsPrevious
	Clock       = state.HoldsClock
	DynamicSet  = state.HoldsDynamicSet
	DynamicSets = state.HoldsDynamicSets

	Private  = state.Private
	Pinned   = state.Pinned
	Carried  = state.Carried
	Attached = state.Attached

	Ingress = state.Ingress
	Egress  = state.Egress
)

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

// MapLike returns the name of the map in a ledger that holds the same, if it has one.
func MapLike(ledger []MapUse, holds Identity) (name string, ok bool) {
	i := slices.IndexFunc(ledger, func(m MapUse) bool { return m.Holds == holds })
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

// addMaps adds the maps of the plan's ledger to the program, except tables.
func (c *compiler) addMaps() error {
	for i := range c.Plan.Ledger.Maps {
		m := &c.Plan.Ledger.Maps[i]
		var spec *ebpf.MapSpec
		switch m.Holds.What {
		case Tables:
			continue
		case Previous, state.HoldsBehind: // the kernel empties it when no user holds it
			spec = state.Memory(m.Name, 4)
			spec.Type, spec.Flags = ebpf.ProgramArray, 0
		case DynamicSet, DynamicSets:
			var err error
			if spec, err = m.Sets.Spec(m.Name); err != nil {
				return c.errorf("map %s: %w", m.Name, err)
			}
		default:
			if spec = m.Spec; spec == nil {
				spec = state.Memory(m.Name, m.Bytes)
			}
		}
		c.addMap(spec, m.Holds, m.Lifetime)
	}
	return nil
}
