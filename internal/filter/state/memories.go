package state

import (
	"levee/internal/filter/limit"
	"levee/internal/lang/diag"
)

// Reading is the memory of a row as it is read, and what the description of the program says of it.
type Reading struct {
	Memory  []byte
	Now, HZ uint64      // in jiffies
	Limit   Budgets     // whose it is, without counts
	Shape   limit.Shape // of the limit
	Cookies []Answering
	Echoes  []Proving
	// Greylists are rules, as cookies are.
	Greylists []Answering
	Logs      int    // how many the program has
	Name      string // of the identity of the map
	// Taken are the places with an entry in another map of the row, of sockets or programs.
	Taken func(Identity) []int
	// Beside reads the memory of another map of the row.
	Beside func(of Identity, read func(memory []byte))
}

// Answering is a rule that may act above a rate: a cookie, which answers, or a greylist.
type Answering struct {
	Rule   diag.Shown
	Meter  int
	Always bool // whatever the rate
}

// Proving is a `prove` statement.
type Proving struct {
	Name  string
	Tally int
}

// Value is a number that a row tells, and its metric.
type Value struct {
	Metric  string // which ends in its unit, where it has one
	Unit    string
	Counter bool
	Help    string
	Of      func(m *Memories) []Sample
}

// Sample is one number; of a limit that of its rule, of a ring with its name.
type Sample struct {
	Limit *Budgets
	Ring  string
	V     float64
}

// number is a type of counts.
type number interface{ ~int | ~uint64 }

// gauge returns a value that goes up and down.
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

// counter returns a value that only goes up: its metric's name, unit and help, and how to read it.
func counter[S any, N number](metric, unit, help string, from func(*Memories) *S,
	of func(*S) N) Value {
	v := gauge(metric, unit, help, from, of)
	v.Counter = true
	return v
}

// ofLimits returns a value that each limit has.
func ofLimits[N number](metric, unit string, counts bool, help string, of func(*Budgets) N) Value {
	return Value{metric, unit, counts, help, func(m *Memories) (all []Sample) {
		for i := range m.Limits {
			all = append(all, Sample{Limit: &m.Limits[i], V: float64(of(&m.Limits[i]))})
		}
		return all
	}}
}
