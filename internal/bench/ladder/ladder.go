// Package ladder measures places to drop packets against each other, by the rules of package flood:
// an application, filters of the kernel from its socket up to the driver, and levee.
//
// In go Options, out comes a Report: for each rung and each IP family packets a second and the time
// that a packet costs, against the empty XDP program and against levee, with every raw window.
package ladder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"levee/examples"
	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
)

// Options of a ladder. The zero value measures all rungs, both families, for about five minutes.
type Options struct {
	flood.Options
	// text of levee's policy; nil for the demo policy, whose rules the others have
	Policy     []byte
	PolicyName string
	Rungs      []string // names, empty for all
	// Families that are measured, IPv4 and IPv6; empty for both. The figures of a rung are those of
	// the first, and by_family has all.
	Families []string
	// Traffic names the floods of the mix (flood.TrafficNames); empty for udp alone, which is the
	// only one that the application's rungs can take.
	Traffic []string
	// Rates of each flood, packets a second; empty for as fast as it goes. The figures of a rung
	// are then of all together: only its windows tell rates apart, by the name of their traffic.
	Rates []float64
}

// AtRate returns the name of a flood at a rate.
func AtRate(flood string, rate float64) string { return fmt.Sprintf("%s at %g", flood, rate) }

func (o *Options) complete() error {
	if o.Policy == nil {
		o.Policy, o.PolicyName = examples.Demo, examples.DemoName
	}
	if len(o.Traffic) == 0 {
		o.Traffic = []string{"udp"}
	}
	itself := func(s string) string { return s }
	err := o.Options.Complete(flood.Many)
	for _, c := range []struct {
		what   string
		chosen *[]string
		list   []string
	}{{"family", &o.Families, []string{flood.IPv4, flood.IPv6}},
		{"flood", &o.Traffic, flood.TrafficNames}} {
		list, wrong := bench.Choose(c.what, *c.chosen, c.list, itself)
		*c.chosen, err = list, errors.Join(err, wrong)
	}
	return err
}

// Run measures the rungs. It needs root and two cores. An error means that there is no report,
// except when ctx ends: then the report, which is marked incomplete, has what was measured until
// then, and the error matches ctx's. A rung that could not be measured says so in the report
// instead.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	wrong := o.complete()
	rungs, unknown := o.rungs()
	_, refused := contender.Resolve(o.PolicyName, o.Policy)
	if err := bench.Ready("ladder", wrong, unknown, refused); err != nil {
		return nil, err
	}
	if !lab.HaveIPv6() {
		o.Families = slices.DeleteFunc(o.Families, func(f string) bool { return f == flood.IPv6 })
		if len(o.Families) == 0 {
			return nil, kernel.Refuse(nil, "this kernel runs without IPv6: measure --family 4")
		}
	}
	l, err := flood.Open(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Listen(flood.Port, true); err != nil {
		return nil, err
	}
	c := &flood.Comparison{Families: o.Families, Rounds: o.Rounds}
	for _, family := range o.Families {
		for _, t := range flood.Floods(o.Traffic, family, l.In()) {
			if len(o.Rates) == 0 {
				c.Traffic = append(c.Traffic, t)
			}
			name := t.Name
			for _, rate := range o.Rates {
				t.Name, t.Rate, c.Each = AtRate(name, rate), rate, true
				c.Traffic = append(c.Traffic, t)
			}
		}
	}
	r = newReport(&o, l, c)
	for _, g := range rungs {
		r.add(g)
	}
	if err = l.Compare(ctx, c); err != nil && !c.Incomplete {
		return nil, err
	}
	if c.Rounds < r.Rounds {
		r.Caveats = append(r.Caveats, fmt.Sprintf("%d rounds of %d: the time was up", c.Rounds,
			r.Rounds))
		r.Rounds = c.Rounds
	}
	r.summarise()
	return r, err
}
