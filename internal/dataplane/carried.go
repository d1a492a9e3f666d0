package dataplane

import (
	"slices"
	"time"

	"levee/internal/filter/shadow"
)

// carried is what generations that are gone have counted. A generation's counts are in it if and
// only if its number is in Folded; both change in one rename, so that a process killed at any
// moment neither loses a packet nor counts it twice.
type carried struct {
	Folded     []int                `json:"folded"` // folded, but perhaps not yet removed
	Totals     map[string][]Counter `json:"totals"` // by what slots count, then by CPU
	RolledBack *RolledBack          `json:"rolled_back,omitempty"`
	Shadow     *carriedShadow       `json:"shadow,omitempty"` // of the one that goes on
}

// carriedFile holds the counts of generations that are gone.
const carriedFile = "carried.json"

// Counter is what one slot of a policy has counted.
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

// carriedShadow is what the shadows of replaced generations have counted, of the shadow that goes
// on.
type carriedShadow struct {
	Shadow uint64               `json:"shadow"`
	Totals map[string][]Counter `json:"totals"` // by what slots count, then by CPU
	Pairs  []carriedPair        `json:"pairs"`
	Untold Counter              `json:"untold"`
}

func (c *carriedShadow) clone() *carriedShadow {
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

// of is what is carried of one shadow.
func (c *carriedShadow) of(number uint64) *carriedShadow {
	if c != nil && c.Shadow == number {
		return c
	}
	return &carriedShadow{Shadow: number, Totals: map[string][]Counter{}}
}

// pairID is a pair of decisions by the identities of rules; Would is empty where the shadow was not
// asked.
type pairID struct {
	Judged        string         `json:"judged"`
	JudgedVerdict shadow.Verdict `json:"judged_verdict"`
	Would         string         `json:"would"`
	WouldVerdict  shadow.Verdict `json:"would_verdict"`
}

type carriedPair struct {
	pairID
	Counter
}
