package codegen

import (
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/filter/cookie"
	"levee/internal/filter/divert"
	"levee/internal/filter/plan"
	"levee/internal/filter/shadow"
)

// MapUse is a map of a program: what it holds, and how long that lives. The loader takes what it
// does with a map from here; names are for people.
type MapUse struct {
	Name     string   `json:"name"` // in Spec.Maps
	Holds    Identity `json:"holds"`
	Lifetime Lifetime `json:"lifetime"`
}

// What maps hold, and how long they live, says the plan's ledger.
type (
	Identity = plan.Identity
	Contents = plan.Contents
	Lifetime = plan.Lifetime
)

const (
	Tables      = plan.HoldsTables
	Counters    = plan.HoldsCounters
	LastSlot    = plan.HoldsLastSlot
	Deadline    = plan.HoldsDeadline
	Previous    = plan.HoldsPrevious
	Capture     = plan.HoldsCapture
	Clock       = plan.HoldsClock
	Flows       = plan.HoldsFlows
	Cookies     = plan.HoldsCookies
	Fragments   = plan.HoldsFragments
	Diverted    = plan.HoldsDiverted
	Trap        = plan.HoldsTrap
	Work        = plan.HoldsWork
	Events      = plan.HoldsEvents
	Losses      = plan.HoldsLosses
	Limit       = plan.HoldsLimit
	Pairs       = plan.HoldsPairs
	Judged      = plan.HoldsJudged
	DynamicSet  = plan.HoldsDynamicSet
	DynamicSets = plan.HoldsDynamicSets

	Private  = plan.Private
	Pinned   = plan.Pinned
	Carried  = plan.Carried
	Attached = plan.Attached
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

// addMap gives the program a map, once.
func (c *compiler) addMap(spec *ebpf.MapSpec, holds Identity, l Lifetime) {
	if c.maps[spec.Name] == nil {
		c.maps[spec.Name] = spec
		c.ledger = append(c.ledger, MapUse{spec.Name, holds, l})
	}
}

// addMaps gives the program the maps of the plan's ledger, but for tables.
func (c *compiler) addMaps() error {
	for i := range c.plan.Ledger.Maps {
		m := &c.plan.Ledger.Maps[i]
		var spec *ebpf.MapSpec
		switch m.Holds.What {
		case Tables:
			continue
		case Previous, Capture: // the kernel empties it when no user holds it
			spec = memory(m.Name, 4)
			spec.Type, spec.Flags = ebpf.ProgramArray, 0
			if m.Holds.What == Capture {
				spec.MaxEntries = plan.CaptureEntries
			}
		case Pairs:
			spec = memory(m.Name, shadow.CPUBytes)
			spec.MaxEntries = uint32(c.plan.CPUs)
		case Trap:
			spec = divert.TrapSpec()
		case Work:
			spec = memory(m.Name, cookie.WorkBytes)
			spec.Type, spec.Flags = ebpf.PerCPUArray, 0
		case Events:
			spec = &ebpf.MapSpec{Name: m.Name, Type: ebpf.PerfEventArray, KeySize: 4, ValueSize: 4}
		case DynamicSet, DynamicSets:
			var err error
			if spec, err = m.Sets.Spec(m.Name); err != nil {
				return c.errorf("map %s: %w", m.Name, err)
			}
		default:
			spec = memory(m.Name, m.Bytes)
		}
		c.addMap(spec, m.Holds, m.Lifetime)
	}
	return nil
}
