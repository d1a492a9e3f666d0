package store

import (
	"slices"
	"time"

	"levee/internal/filter/shadow"
)

// Carried holds the counts of generations that are gone. It has the counts of a generation if and
// only if Folded has its number; both change in one rename, so that a process killed at any moment
// neither loses a packet nor counts it twice.
type Carried struct {
	Folded     []int                `json:"folded"` // folded, but perhaps not yet removed
	Totals     map[string][]Counter `json:"totals"` // by what slots count, then by CPU
	RolledBack *RolledBack          `json:"rolled_back,omitempty"`
	Shadow     *CarriedShadow       `json:"shadow,omitempty"` // of the one that goes on
}

// CarriedFile holds the counts of generations that are gone.
const CarriedFile = "carried.json"

// Counter holds the counts of one slot of a policy.
type Counter struct {
	Packets uint64
	Bytes   uint64 // whole frames without FCS
}

// RolledBack tells of a policy that was not confirmed in time.
type RolledBack struct {
	Policy     string    `json:"policy"`
	Generation int       `json:"generation"`
	Deadline   time.Time `json:"deadline"`
}

// CarriedShadow holds the counts of the current shadow from replaced generations.
type CarriedShadow struct {
	Shadow uint64               `json:"shadow"`
	Totals map[string][]Counter `json:"totals"` // by what slots count, then by CPU
	Pairs  []CarriedPair        `json:"pairs"`
	Untold Counter              `json:"untold"`
}

func (c *CarriedShadow) Clone() *CarriedShadow {
	if c == nil {
		return nil
	}
	out := *c
	out.Totals = map[string][]Counter{}
	for id, cpus := range c.Totals {
		out.Totals[id] = slices.Clone(cpus)
	}
	out.Pairs = slices.Clone(c.Pairs)
	return &out
}

// Of returns the carried counts of one shadow.
func (c *CarriedShadow) Of(number uint64) *CarriedShadow {
	if c != nil && c.Shadow == number {
		return c
	}
	return &CarriedShadow{Shadow: number, Totals: map[string][]Counter{}}
}

// PairID is a pair of decisions by the identities of rules; Would is empty where the shadow was not
// asked.
type PairID struct {
	Judged        string         `json:"judged"`
	JudgedVerdict shadow.Verdict `json:"judged_verdict"`
	Would         string         `json:"would"`
	WouldVerdict  shadow.Verdict `json:"would_verdict"`
}

type CarriedPair struct {
	PairID
	Counter
}
