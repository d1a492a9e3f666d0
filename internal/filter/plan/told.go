package plan

import (
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/filter/route"
	"levee/internal/filter/state"
	"levee/internal/lang/field"
)

// traceTold is where the map "trace" has what the kernel is to tell, behind the slot that decided
// last: eight bytes for each field.
const traceTold = 8

// TraceAt is where the map "trace" has what the kernel is to tell of a field.
func TraceAt(f field.Field) int16 {
	return int16(traceTold + 8*slices.Index(field.Remembered(), f))
}

// TraceBytes are those of the map "trace".
func TraceBytes() int { return traceTold + 8*len(field.Remembered()) }

// sizeRoute is asking for the way back to a source, but for the functions.
const sizeRoute = 20

// Told are the fields that rules of the chain ask and that the kernel tells.
func (c *Chain) Told() (all []field.Field) {
	for f, asks := range c.Asks {
		if asks && field.Field(f).Info().Kernel != field.NoSide {
			all = append(all, field.Field(f))
		}
	}
	return all
}

// AsksRoute reports whether rules of the chain ask for the way back to a source.
func (c *Chain) AsksRoute() bool { return c.Asks[field.StrictPath] || c.Asks[field.LoosePath] }

// askRoute notes what a route is asked by.
func (f *Fields) askRoute() {
	for _, by := range []field.Field{field.SrcAddr, field.DstAddr, field.VLAN, field.InnerVLAN,
		field.StrictPath, field.LoosePath} {
		f[by] = true
	}
}

// AsksRoute reports whether rules ask for the way back to a source.
func (p *Plan) AsksRoute() bool {
	for _, c := range p.Chains {
		if c.AsksRoute() {
			return true
		}
	}
	return false
}

// enterRoutes writes the map of interfaces that packets come up to.
func (p *planner) enterRoutes() {
	if p.AsksRoute() && !p.Target.Trace {
		p.Ledger.Maps = append(p.Ledger.Maps, Map{Map: state.Map{Name: route.Map,
			Bytes: route.Bytes, For: "interfaces that packets come up to",
			Holds: state.Identity{What: state.HoldsWays}, Lifetime: state.Attached}})
	}
}

// sizeTelling is what asking the kernel takes, but for the rules.
func (p *planner) sizeTelling() (functions, instructions int) {
	if !p.AsksRoute() || p.Target.Trace {
		return 0, 0
	}
	families := map[ir.Family]bool{}
	for _, c := range p.Chains {
		if c.AsksRoute() {
			families[c.Family()] = true
		}
	}
	return len(families) + 1, route.MaxInstructions
}
