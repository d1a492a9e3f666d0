package state

import (
	"fmt"

	"github.com/cilium/ebpf"

	"levee/internal/filter/cookie"
	"levee/internal/filter/divert"
	"levee/internal/filter/flow"
	"levee/internal/filter/fragment"
	"levee/internal/filter/limit"
	"levee/internal/filter/logging"
	"levee/internal/filter/shadow"
)

// Table has a row for each memory. Programs have their functions in its order.
var Table = []Row{connections, limits, logs, proofs, fragments, diversions, pairs}

var connections = Row{
	Name: "connections",
	What: HoldsFlows,
	Used: func(u *Use) bool { return u.Tracks },
	Maps: func(*Use) []Map {
		return []Map{{Name: flow.Map, Bytes: flow.Size, For: "connections",
			Holds: Identity{What: HoldsFlows}, Lifetime: Carried}}
	},
	Bound: func(u *Use) Bound {
		b := Bound{5, flow.MaxInstructions + flow.MaxStrangeInstructions}
		if !u.Plain {
			b.Add(Bound{2, flow.MaxQuoteInstructions})
		}
		return b
	},
	Emit: func(e *Emission) error {
		emitted := map[string]bool{}
		for _, proto := range e.Protocols {
			if label := flow.Label(proto); !emitted[label] {
				emitted[label] = true
				flow.Emit(e.Builder, proto, e.Proves)
			}
		}
		if err := flow.EmitStrange(e.Builder); err != nil {
			return err
		}
		return flow.EmitQuotes(e.Builder, e.Context, e.TCX, e.Frags)
	},
	Beside: &Program{flow.Program, Egress,
		func(u *Use) (*ebpf.ProgramSpec, error) { return flow.Spec(u.Link) }},
	Shared: []Contents{HoldsFlows},
	Head:   flow.HeadBytes,
	Seed:   flow.Seed,
}

var limits = Row{
	Name: "limits",
	What: HoldsLimit,
	Used: func(u *Use) bool { return len(u.Limits) > 0 },
	Maps: func(u *Use) (maps []Map) {
		for i := range u.Limits {
			l := &u.Limits[i]
			maps = append(maps, Map{Name: l.Map, Bytes: limit.Size(l.Limit),
				For: "budgets of " + l.Name, Holds: l.holds(), Lifetime: Carried})
		}
		return maps
	},
	Bound: func(u *Use) (b Bound) {
		for _, l := range u.Limits {
			b.Add(Bound{1, limit.MaxInstructions(l.Limit)})
		}
		return b
	},
	Emit: func(e *Emission) error {
		for i := range e.Limits {
			f := limit.Function{Builder: e.Builder, Limit: e.Limits[i].Limit, Map: e.Limits[i].Map,
				HZ: e.HZ, Alone: e.CPUs == 1, Merged: e.TCX}
			f.Emit(limit.Label(f.Map))
		}
		return nil
	},
	Shared: []Contents{HoldsLimit},
	Head:   limit.Head,
	Seed:   func(head []byte, _ uint64) { limit.Seed(head) },
}

// holds is what the memory of a limit holds: programs of another geometry, unit of time, burst or
// price read it otherwise, and get what was spent in a memory of their own (limit.Carrier).
func (l *Limit) holds() Identity {
	return Identity{What: HoldsLimit, Name: l.ID,
		Kind: fmt.Sprintf("%d lines, %s%s", l.Lines(), limit.ShapeOf(l.Limit), l.ByKeys())}
}

var logs = Row{
	Name: "logs",
	What: HoldsEvents,
	Used: func(u *Use) bool { return len(u.Logs) > 0 },
	Maps: func(u *Use) []Map {
		return []Map{
			{logging.EventsMap, 4, "who watches", Identity{What: HoldsEvents}, Carried,
				logging.EventsSpec()},
			{Name: logging.LossesMap, Bytes: u.CPUs * logging.Row(len(u.Logs)),
				For: "events that nobody was told of", Holds: Identity{What: HoldsLosses},
				Lifetime: Pinned},
		}
	},
	Bound: func(u *Use) Bound {
		return Bound{len(u.Logs), logging.MaxInstructions * len(u.Logs)}
	},
	Emit: func(e *Emission) error {
		f := logging.Functions{Builder: e.Builder, Context: e.Context, TCX: e.TCX, CPUs: e.CPUs,
			HZ: e.HZ, Numbers: e.Logs}
		f.EmitAll()
		return nil
	},
}

var proofs = Row{
	Name: "cookies",
	What: HoldsCookies,
	Used: func(u *Use) bool { return u.Cookies > 0 || u.AsksProven },
	Maps: func(u *Use) []Map {
		maps := []Map{{Name: cookie.Map, Bytes: cookie.Size,
			For: "sources that have proven themselves", Holds: Identity{What: HoldsCookies},
			Lifetime: Carried}}
		if u.Cookies > 0 {
			maps = append(maps, Map{cookie.WorkMap, cookie.WorkBytes,
				"what cookies work on, for each CPU", Identity{What: HoldsWork}, Private,
				cookie.WorkSpec()})
		}
		return maps
	},
	Bound: func(u *Use) (b Bound) {
		if u.Cookies > 0 {
			b.Add(Bound{1, cookie.MaxInstructions})
		}
		if u.Proves {
			b.Add(Bound{1, 0})
		}
		if u.AsksProven {
			b.Add(Bound{1, cookie.MaxSourceInstructions})
		}
		return b
	},
	Emit: func(e *Emission) error {
		if e.Cookies > 0 {
			if err := cookie.Emit(e.Builder, e.Context, e.TCX, e.Frags, e.Link); err != nil {
				return err
			}
		}
		return cookie.EmitSources(e.Builder)
	},
	Shared: []Contents{HoldsCookies},
	Head:   cookie.HeadBytes,
	Seed:   cookie.Seed,
}

var fragments = Row{
	Name: "fragments",
	What: HoldsFragments,
	Used: func(u *Use) bool { return u.Fragments > 0 },
	Maps: func(*Use) []Map {
		return []Map{{Name: fragment.Map, Bytes: fragment.Size,
			For: "datagrams that come in fragments", Holds: Identity{What: HoldsFragments},
			Lifetime: Carried}}
	},
	Bound:  func(u *Use) Bound { return Bound{u.Fragments, fragment.MaxInstructions} },
	Emit:   func(e *Emission) error { return fragment.Emit(e.Builder, e.Key) },
	Shared: []Contents{HoldsFragments},
	Head:   fragment.HeadBytes,
	Seed:   fragment.Seed,
}

var diversions = Row{
	Name: "diversions",
	What: HoldsDiverted,
	Used: func(u *Use) bool { return u.Diverts > 0 },
	Maps: func(*Use) []Map {
		return []Map{
			{Name: divert.Map, Bytes: divert.Size, For: "packets that are diverted",
				Holds: Identity{What: HoldsDiverted}, Lifetime: Carried},
			{divert.TrapMap, divert.SocketBytes, "sockets of the trap", Identity{What: HoldsTrap},
				Attached, divert.TrapSpec()},
		}
	},
	Bound: func(u *Use) Bound { return Bound{u.Diverts, divert.MaxInstructions} },
	Emit:  func(e *Emission) error { return divert.Emit(e.Builder) },
	Beside: &Program{divert.Program, SocketLookup,
		func(*Use) (*ebpf.ProgramSpec, error) { return divert.Spec() }},
	Shared: []Contents{HoldsDiverted, HoldsTrap},
	Head:   divert.HeadBytes,
	Seed:   divert.Seed,
}

var pairs = Row{
	Name: "shadow",
	What: HoldsPairs,
	Used: func(u *Use) bool { return u.JudgedBytes > 0 },
	Maps: func(u *Use) []Map {
		return []Map{
			{shadow.Map, u.CPUs * shadow.CPUBytes, "pairs of rules, and flows that differ",
				Identity{What: HoldsPairs}, Pinned, shadow.Spec(u.CPUs)},
			{Name: shadow.JudgedMap, Bytes: u.CPUs * u.JudgedBytes,
				For: "counters of the policy in force", Holds: Identity{What: HoldsJudged},
				Lifetime: Private},
		}
	},
	Bound: func(*Use) Bound { return Bound{1, shadow.MaxInstructions} },
	Emit:  func(e *Emission) error { return shadow.Emit(e.Builder, e.Context, e.TCX, e.Link) },
}
