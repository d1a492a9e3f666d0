package state

import (
	"fmt"
	"strings"
	"time"

	"levee/internal/filter/limit"
	"levee/internal/filter/price"
	"levee/internal/lang/action"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// What maps of the row hold.
const (
	// HoldsLimit is an array of 1 entry, BPF_F_MMAPABLE: the memory of a limit, package limit. The
	// name is the identity of its rule.
	HoldsLimit Contents = "limit"
)

// Limit is a limit that packets may reach.
type Limit struct {
	*policy.Limit
	ID   string // of its rule
	Name string // of its rule, for people
	Map  string // with its budgets
	// Families are those of the packets that come to it.
	Families limit.Families
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
			n := limit.Functions(l.Limit, l.Families)
			b.Add(Bound{n, n * limit.MaxInstructions(l.Limit)})
		}
		return b
	},
	Emit: func(e *Emission) error {
		for i := range e.Limits {
			f := limit.Function{Builder: e.Builder, Limit: e.Limits[i].Limit, Map: e.Limits[i].Map,
				HZ: e.HZ, Alone: e.CPUs == 1 && !e.Service, Merged: e.TCX,
				Families: e.Limits[i].Families}
			f.Emit()
		}
		return nil
	},
	// finding and charging a budget: three hashes, of flows
	Calls:  []Call{{Action: action.Limit, Size: 200, Time: price.Wait(17)}},
	Shared: []Contents{HoldsLimit},
	Head:   limit.Head,
	Seed:   func(head []byte, _ uint64) { limit.Seed(head) },
	Carry: func(c *Carrying) Moving {
		return limit.NewCarrier(c.From, c.Was, c.To, c.Is, c.Now, c.HZ)
	},
	Tell: func(r *Reading, to *Memories) {
		l := r.Limit
		l.Bytes, l.Stats = len(r.Memory), limit.Read(r.Memory, r.Shape, r.Now, r.HZ)
		to.Limits = append(to.Limits, l)
	},
	Values: []Value{
		ofLimits("levee_limit_live_budgets", "budgets", false,
			"Budgets of the limit that are in debt.", func(l *Budgets) int { return l.Live }),
		ofLimits("levee_limit_max_budgets", "budgets", false,
			"Budgets that the limit has room for.", func(l *Budgets) int { return l.Slots }),
		ofLimits("levee_limit_evicted_budgets", "budgets", true,
			"Budgets in debt that another key has taken over, as their line was full.",
			func(l *Budgets) uint64 { return l.Evicted }),
		ofLimits("levee_limit_contended_packets", "packets", true,
			"Packets dropped because other CPUs changed their budget again and again.",
			func(l *Budgets) uint64 { return l.Contended }),
	},
	Lines: func(of *Memories, _ string) (lines []Line) {
		for i := range of.Limits {
			l := &of.Limits[i]
			lines = append(lines, Line{
				Name: strings.TrimSpace(fmt.Sprintf("limit %s %s", l.Rule, l.Label)),
				Live: l.Live,
				Now: fmt.Sprintf("%d of %d budgets live, %d evicted with a debt of %s", l.Live,
					l.Slots, l.Evicted, l.Inherited()),
			})
		}
		return lines
	},
}

// holds returns what the memory of a limit holds: programs of another geometry, unit of time, burst
// or price read it otherwise, and get what was spent in a memory of their own (limit.Carrier).
func (l *Limit) holds() Identity {
	return Identity{What: HoldsLimit, Name: l.ID,
		Kind: fmt.Sprintf("%d lines, %s%s", l.Lines(), limit.ShapeOf(l.Limit), l.ByKeys())}
}

// Budgets is the status of the memory of a limit.
type Budgets struct {
	ID    string     `json:"-"` // across replaces
	Rule  diag.Shown `json:"rule"`
	Label string     `json:"label"`
	Bytes int        `json:"bytes"`
	limit.Stats
}

// Inherited returns the sum of debts that keys took over with another key's slot, rounded to 1 ms.
func (b *Budgets) Inherited() time.Duration {
	return time.Duration(b.InheritedSeconds * float64(time.Second)).Round(time.Millisecond)
}
