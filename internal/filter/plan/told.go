package plan

import (
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/filter/price"
	"levee/internal/filter/route"
	"levee/internal/filter/sender"
	"levee/internal/filter/state"
	"levee/internal/lang/field"
)

// traceTold is the place in the map "trace" for what the kernel is to tell, behind the slot that
// decided last: eight bytes for each field.
const traceTold = 8

// TraceAt returns where the map "trace" has what the kernel is to tell of a field.
func TraceAt(f field.Field) int16 {
	return int16(traceTold + 8*slices.Index(field.Remembered(), f))
}

// TraceBytes returns those of the map "trace".
func TraceBytes() int { return traceTold + 8*len(field.Remembered()) }

// sizeSender is the instructions of asking who sends, without the functions.
const sizeSender = 40

// sizeRoute is the instructions of asking for the way back to a source, without the functions.
const sizeRoute = 20

// Told returns the fields that rules of the chain ask and that the kernel tells.
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

// askRoute notes the fields by which the kernel's routes are asked.
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

// asksSender reports whether rules of the chain ask who sends, besides whether this machine does.
func (c *Chain) asksSender() bool {
	return slices.ContainsFunc(c.Told(), func(f field.Field) bool {
		return f.Info().Kernel == field.Leaving && f != field.Local
	})
}

// senderPrice returns the time of asking who sends.
func (c *Chain) senderPrice() (ns float64) {
	if c.Asks[field.UID] || c.Asks[field.User] {
		ns += price.UID
	}
	if c.Asks[field.GID] || c.Asks[field.Group] {
		ns += price.GID
	}
	if c.Asks[field.Service] || c.Asks[field.Container] {
		ns += price.Cgroup
	}
	return ns
}

// asksOrigin reports whether they ask that, or whether this machine sends.
func (c *Chain) asksOrigin() bool { return c.asksSender() || c.Asks[field.Local] }

// asksSenders reports whether rules ask who sends.
func (p *Plan) asksSenders() bool { return slices.ContainsFunc(p.Chains, (*Chain).asksSender) }

// AsksKernel reports whether rules ask what the kernel tells of a packet.
func (p *Plan) AsksKernel() bool {
	return slices.ContainsFunc(p.Chains, func(c *Chain) bool { return len(c.Told()) > 0 })
}

// enterSenders writes the maps of who sends.
func (p *planner) enterSenders() {
	if !p.asksSenders() || p.Target.Trace {
		return
	}
	p.Ledger.Maps = append(p.Ledger.Maps,
		Map{Map: state.Map{Name: sender.Map, Bytes: sender.Bytes,
			For:   "whom rules name, and what is known of sockets and cgroups",
			Holds: state.Identity{What: state.HoldsSenders}, Lifetime: state.Pinned}},
		Map{Map: state.Map{Name: sender.WorkMap, Bytes: sender.WorkBytes,
			For:   "what reading names of cgroups works on, for each CPU",
			Holds: state.Identity{What: state.HoldsSenderWork}, Lifetime: state.Private,
			Spec: sender.WorkSpec()}})
}

// enterRoutes adds to the ledger the map of interfaces that receive packets.
func (p *planner) enterRoutes() {
	if p.AsksRoute() && !p.Target.Trace {
		p.Ledger.Maps = append(p.Ledger.Maps, Map{Map: state.Map{Name: route.Map,
			Bytes: route.Bytes, For: "interfaces that packets come up to",
			Holds: state.Identity{What: state.HoldsWays}, Lifetime: state.Attached}})
	}
}

// senderFunctions returns how many functions ask who sends.
func (p *Plan) senderFunctions() int {
	asks := func(of ...field.Field) int {
		for _, c := range p.Chains {
			if slices.ContainsFunc(of, func(f field.Field) bool { return c.Asks[f] }) {
				return 1
			}
		}
		return 0
	}
	// that of the cgroup, its unit, the digest of a name and its end, services and containers
	const byCgroup = 6
	return 1 + asks(field.UID, field.User) + asks(field.User) + asks(field.GID, field.Group) +
		asks(field.Group) + byCgroup*asks(field.Service, field.Container)
}

// sizeTelling returns the functions and instructions of asking the kernel, without those in rules.
func (p *planner) sizeTelling() (functions, instructions int) {
	if p.asksSenders() && !p.Target.Trace {
		functions, instructions = p.senderFunctions(), sender.MaxInstructions
	}
	if !p.AsksRoute() || p.Target.Trace {
		return functions, instructions
	}
	families := map[ir.Family]bool{}
	for _, c := range p.Chains {
		if c.AsksRoute() {
			families[c.Family()] = true
		}
	}
	return functions + len(families) + 1, instructions + route.MaxInstructions
}
