package bench

import (
	"context"
	"errors"
	"fmt"
	"os"

	"levee/internal/gen"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/peer"
)

// Trace is traffic of a measurement: frames that are sent in turn. Their Ethernet addresses become those
// of the lab.
type Trace struct {
	Name, What string
	Frames     [][]byte
}

// Measure compares any defences under any traffic by the rules of this package; the traffic is such
// that every defence drops all of it. Of the options the policy and the names of rungs are
// not used. The report has a rung for each defence, in their order.
func Measure(ctx context.Context, o Options, defences []peer.Defence, traces []Trace) (*Report, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	o.PolicyName = ""
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root")
	}
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	b, err := newBench(l, &o)
	if err != nil {
		return nil, err
	}
	b.mix = nil
	for _, t := range traces {
		b.mix = append(b.mix, traffic{name: t.Name, what: t.What, frames: &gen.Frames{Frames: t.Frames}})
	}
	r := newReport(&o, b)
	for _, d := range defences {
		r.Rungs = append(r.Rungs, &Rung{Name: d.Name(), What: d.Describe(), Windows: []Window{}})
	}
	if err := b.pinned(func() error { return b.rounds(ctx, defences, r) }); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r.summarise()
	return r, l.Close()
}

// Summary is the median of values with its 95 % interval, which is unbounded for fewer than six.
func Summary(values []float64) (median, lo, hi float64) {
	f := summary(values)
	return f.MedianPPS, f.Interval[0], f.Interval[1]
}
