package state

import (
	"strings"
	"time"

	"levee/internal/filter/cookie"
	"levee/internal/filter/divert"
	"levee/internal/filter/flow"
	"levee/internal/filter/fragment"
	"levee/internal/filter/limit"
	"levee/internal/lang/syntax"
)

// Memories are what the memories of a policy tell: the one model of commands, of their JSON, of the
// API, and of metrics. A row fills its field.
type Memories struct {
	Limits []Budgets `json:"limits"`
	// of a policy that asks for them
	Connections *flow.Stats `json:"connections,omitempty"`
	// of a policy that has cookies, or asks who is proven
	Cookies *Proofs `json:"cookies,omitempty"`
	// of a policy that follows them
	Fragments *fragment.Stats `json:"fragments,omitempty"`
	// of a policy that diverts connections
	Diverted *Diversions `json:"diverted,omitempty"`
}

// Budgets are what the memory of a limit tells.
type Budgets struct {
	ID    string       `json:"-"` // across replaces
	Rule  syntax.Shown `json:"rule"`
	Label string       `json:"label"`
	Bytes int          `json:"bytes"`
	limit.Stats
}

// Inherited are the debts that other keys have taken over.
func (b *Budgets) Inherited() time.Duration {
	return time.Duration(b.InheritedSeconds * float64(time.Second)).Round(time.Millisecond)
}

// Proofs are what the memory of cookies tells.
type Proofs struct {
	cookie.Stats
	Answering []syntax.Shown `json:"answering"` // rules that answer SYNs now
}

// answering names the rules.
func (p *Proofs) answering() string {
	if len(p.Answering) == 0 {
		return "answering nobody"
	}
	var names []string
	for _, r := range p.Answering {
		names = append(names, string(r))
	}
	return "answering for " + strings.Join(names, ", ")
}

// Diversions are what the memory of diversions tells.
type Diversions struct {
	Trap bool `json:"trap"` // there is one
	divert.Stats
}

// Reading is the memory of a row as it is read, and what the description of the program says of it.
type Reading struct {
	Memory  []byte
	Now, HZ uint64      // in jiffies
	Limit   Budgets     // whose it is, without counts
	Shape   limit.Shape // of the limit
	Cookies []Answering
}

// Answering is a cookie, which may answer SYNs.
type Answering struct {
	Rule   syntax.Shown
	Meter  int
	Always bool // whatever the rate of SYNs
}

// Value is a number that a row tells, and its metric.
type Value struct {
	Metric  string // which ends in its unit, where it has one
	Unit    string
	Counter bool
	Help    string
	Of      func(m *Memories) []Sample
}

// Sample is one number; of a limit that of its rule.
type Sample struct {
	Limit *Budgets
	V     float64
}

// number is a type of counts.
type number interface{ ~int | ~uint64 }

// gauge is a value that goes up and down.
func gauge[S any, N number](metric, unit, help string, from func(*Memories) *S,
	of func(*S) N) Value {
	return Value{Metric: metric, Unit: unit, Help: help, Of: func(m *Memories) []Sample {
		s := from(m)
		if s == nil {
			return nil
		}
		return []Sample{{V: float64(of(s))}}
	}}
}

// counter is a value that only goes up.
func counter[S any, N number](metric, unit, help string, from func(*Memories) *S,
	of func(*S) N) Value {
	v := gauge(metric, unit, help, from, of)
	v.Counter = true
	return v
}

// ofLimits is a value that each limit has.
func ofLimits[N number](metric, unit string, counts bool, help string, of func(*Budgets) N) Value {
	return Value{metric, unit, counts, help, func(m *Memories) (all []Sample) {
		for i := range m.Limits {
			all = append(all, Sample{&m.Limits[i], float64(of(&m.Limits[i]))})
		}
		return all
	}}
}
