package bench

import (
	"context"
	"fmt"
	"os"

	"levee/internal/kernel"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
)

// Trace is traffic of a measurement: frames that are sent in turn. Their Ethernet addresses become those
// of the lab.
type Trace struct {
	Name, What string
	Frames     [][]byte
}

// Measure compares any defences under any traffic by the rules of this package; the traffic is such
// that every defence drops all of it. Of the options the policy and the names of rungs are
// not used, nor are families and floods. The report has a rung for each defence, in their order; it
// comes with an error as that of Ladder does.
func Measure(ctx context.Context, o Options, defences []contender.Defence, traces []Trace) (*Report, error) {
	d := long
	if o.Quick {
		d = longQuick
	}
	if err := o.completeWith(d); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	o.PolicyName = ""
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root")
	}
	return o.inLab(ctx, func(b *bench) (*Report, []contender.Defence, error) {
		b.mix = nil
		for _, t := range traces {
			b.mix = append(b.mix, traffic{name: t.Name, what: t.What, frames: &gen.Frames{Frames: t.Frames}})
		}
		o.Families = nil
		r := newReport(&o, b)
		for _, d := range defences {
			r.Rungs = append(r.Rungs, &Rung{Name: d.Name(), What: d.Describe(), Windows: []Window{}})
		}
		return r, defences, nil
	})
}
