package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Measured is the gain of an advice, as `levee bench advice` has measured it in a lab, in ns a
// packet.
type Measured struct {
	What     string     `json:"what"`
	With     float64    `json:"with_ns"`
	Without  float64    `json:"without_ns"`
	Gained   float64    `json:"gained_ns"`
	Interval [2]float64 `json:"interval"` // of what is gained, at 95 %
}

// Measurable are the findings whose advice can be tried in a network namespace of its own.
var Measurable = []string{"driver", "tc_ingress", "netfilter", "conntrack", "packet_sockets"}

// advises says whether a finding advises something.
func (f *Finding) advises() bool {
	return f.State == Note || f.State == Costs || f.State == Breaks
}

// ToMeasure returns the names of findings that advise something and can be tried; with all, of
// those that are well, too.
func ToMeasure(findings []Finding, all bool) (names []string) {
	for i := range findings {
		f := &findings[i]
		if slices.Contains(Measurable, f.Name) && (all || f.advises()) {
			names = append(names, f.Name)
		}
	}
	return names
}

// advices holds the fields that are read of the report of `levee bench advice --json`.
type advices struct {
	Advices []struct {
		Name, What string
		With       *figure `json:"with_ns"`
		Without    *figure `json:"without_ns"`
		Gained     *figure `json:"gained_ns"`
		Why        []string
	}
}

type figure struct {
	Median   float64
	Interval [2]float64
}

// TakeMeasured adds what was measured to the findings, nil where nothing was, and to each other one
// that advises something why it was not tried.
func TakeMeasured(findings []Finding, report []byte, dev string) error {
	var all advices
	if len(report) > 0 {
		if err := json.Unmarshal(report, &all); err != nil {
			return fmt.Errorf("read what was measured: %w", err)
		}
	}
	for i := range findings {
		f := &findings[i]
		for _, a := range all.Advices {
			switch {
			case a.Name != f.Name:
			case a.With == nil || a.Without == nil || a.Gained == nil:
				f.Untried = "no figure: " + strings.Join(a.Why, "; ")
			default:
				f.Measured = &Measured{a.What, a.With.Median, a.Without.Median, a.Gained.Median,
					a.Gained.Interval}
			}
		}
		if f.advises() && f.Measured == nil && f.Untried == "" {
			f.Untried = f.untried(dev)
		}
	}
	return nil
}

// untried says why an advice is not tried, and how to.
func (f *Finding) untried(dev string) string {
	if f.About == "device" {
		return fmt.Sprintf("not tried, it would change %s: look at levee top --dev %s before and "+
			"after", dev, dev)
	}
	return "not tried, it would change the whole machine: run levee bench ladder before and after"
}

// Words returns what was measured, for people.
func (m *Measured) Words() string {
	gain := fmt.Sprintf("%.0f gained", m.Gained)
	if m.Interval[0] <= 0 {
		gain = "no gain is shown"
	}
	return fmt.Sprintf("measured in a lab: %.0f ns with it, %.0f without, %s (%.0f to %.0f at "+
		"95 %%): %s", m.With, m.Without, gain, m.Interval[0], m.Interval[1], m.What)
}
