// Package rrul measures a service under TCP at full speed in both directions, with probes beside
// it: what each flow gets, what waits in the queues on the way, and what that makes of round trips
// (realtime response under load, as flent's test of that name).
//
// In go Options, out comes a Report with throughput by direction and flow, the round trips of
// datagrams and of echo requests by time, without load and under it, and the queues that the kernel
// tells of. Probes are due at times drawn beforehand and count from then: one that is late is one
// that took long, and a long one takes none from those behind it. Clients are in a lab, or on
// another machine at the other end of a wire. It must never send outside either.
package rrul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"levee/examples"
	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/lab/contender"
	"levee/internal/lab/peer"
	"levee/internal/lab/queue"
	"levee/internal/usage"
)

// Options of a measurement. Self is required; the zero value of the rest takes about four minutes.
type Options struct {
	bench.Options
	// the command line that calls Role, to which its arguments are added
	Self      []string
	Defences  []string // names, empty for all of DefenceNames
	Queues    []string // of QueueNames, empty for none
	Bandwidth float64  // of the queues, bits a second; 0 for 100 Mbit/s
	Flows     int      // in each direction, 0 for 4
	Probes    float64  // of each kind a second, 0 for 100
	// Before, During and After the load; 0 for 2 s, 6 s and 1 s.
	Before, During, After time.Duration
	// Wire, if given, has the clients on another machine, at the other end of a real card.
	Wire *flood.Wire
}

// RoleName is the name by which a peer starts Role.
const RoleName = "rrul"

// NoQueue is the way without a queue but those of the network stack.
const NoQueue = "none"

// QueueNames returns those that can be chosen.
func QueueNames() []string { return append([]string{NoQueue}, queue.Kinds...) }

// Defences are those of bench service that keep connections: others do not let the probes pass.
func defences() []contender.Defence {
	return []contender.Defence{contender.Nothing(), contender.IPTablesStateful(),
		contender.NFTStateful(),
		contender.LeveeAs("levee-state", examples.ServiceName, examples.Service)}
}

// DefenceNames returns the names of the defences.
func DefenceNames() []string { return bench.Names(defences(), contender.Defence.Name) }

var usual = bench.Usual{Rounds: bench.MinRounds, FewestRounds: 1, MostRounds: bench.MaxRounds}

const (
	servicePort = 80
	probePort   = 443 // which the policies of all defences let datagrams to
	maxFlows    = 64
	maxProbes   = 400 // of each kind a second: policies bound echo requests by 500
	settle      = 500 * time.Millisecond
	step        = 100 * time.Millisecond // between two looks
	lowestRate  = 100e3
	highestRate = 100e9
)

func (o *Options) complete() error {
	if len(o.Queues) == 0 {
		o.Queues = []string{NoQueue}
	}
	o.Bandwidth = cmp.Or(o.Bandwidth, 100e6)
	o.Flows, o.Probes = cmp.Or(o.Flows, 4), cmp.Or(o.Probes, 100)
	o.Before, o.During = cmp.Or(o.Before, 2*time.Second), cmp.Or(o.During, 6*time.Second)
	o.After = cmp.Or(o.After, time.Second)
	for _, d := range []time.Duration{o.Before, o.During, o.After} {
		if d < 2*settle || d > time.Minute {
			return usage.Wrongf("%v before, during or after the load: each lasts %v to 1m", d,
				2*settle)
		}
	}
	switch {
	case o.Flows < 1 || o.Flows > maxFlows:
		return usage.Wrongf("%d flows: 1 to %d each way", o.Flows, maxFlows)
	case !(o.Probes >= 1 && o.Probes <= maxProbes):
		return usage.Wrongf("%g probes a second: 1 to %d; policies bound echo requests", o.Probes,
			maxProbes)
	case !(o.Bandwidth >= lowestRate && o.Bandwidth <= highestRate):
		return usage.Wrongf("a bandwidth of %g bits a second: 100k to 100G", o.Bandwidth)
	}
	if o.Wire != nil {
		if err := o.Wire.Check(); err != nil {
			return err
		}
		if all := o.Before + o.During + o.After; all > peer.Longest {
			return usage.Wrongf("%v before, during and after the load: a peer probes for %v at "+
				"most", all, peer.Longest)
		}
	}
	var unknown error
	o.Queues, unknown = bench.Choose("queue", o.Queues, QueueNames(),
		func(name string) string { return name })
	return errors.Join(o.Complete(usual), unknown)
}

// Run measures. It needs root and two cores. When ctx ends early the report has what was measured
// until then, says that it is incomplete, and comes with the error.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	wrong := o.complete()
	chosen, unknown := bench.Choose("defence", o.Defences, defences(), contender.Defence.Name)
	if err := bench.Ready("service --rrul", wrong, unknown); err != nil {
		return nil, err
	}
	m, end, err := o.open(ctx)
	if end != nil {
		defer func() { err = errors.Join(err, end()) }()
	}
	if err != nil {
		return nil, err
	}
	r := &Report{Head: o.Head(core(m.server), m.caveats...), FlowsEachWay: o.Flows,
		Probes: o.Probes, Before: o.Before.Seconds(), During: o.During.Seconds(),
		After: o.After.Seconds(), Bandwidth: o.Bandwidth}
	if o.Rounds < bench.MinRounds {
		r.Caveats = append(r.Caveats, fmt.Sprintf("%d rounds: an interval needs %d", o.Rounds,
			bench.MinRounds))
	}
	for _, q := range o.Queues {
		for _, d := range chosen {
			r.Cases = append(r.Cases, &Case{Defence: d.Name(), Queue: q, defence: d,
				Runs: []*Once{}})
		}
	}
	err = m.measure(ctx, r)
	return bench.Ended(ctx, r, &r.Head, errors.Join(bench.Interrupted(ctx), err))
}

// measure takes a run of each case a round, in turn. A case that this machine cannot have says so,
// and is not tried again.
func (m *measurement) measure(ctx context.Context, r *Report) error {
	total := m.Rounds * len(r.Cases)
	for round := range m.Rounds {
		for at, i := range bench.InTurn(round, len(r.Cases)) {
			c := r.Cases[i]
			if c.Missing != "" {
				continue
			}
			m.Tell(fmt.Sprintf("round %d of %d: %s", round+1, m.Rounds, c.Name()),
				round*len(r.Cases)+at, total)
			run, err := onTime(ctx, func() (*Once, error) { return m.run(ctx, c, round) })
			switch {
			case ctx.Err() != nil:
				return nil // said by Run
			case errors.Is(err, contender.ErrMissing):
				c.Missing = err.Error()
			case err != nil:
				return fmt.Errorf("%s: %w", c.Name(), err)
			default:
				c.Runs = append(c.Runs, run)
			}
		}
	}
	return nil
}

// mostLate is the number of attempts of a run whose probes are told of too late.
const mostLate = 5

// onTime takes a run again whose probes a busy peer heard of too late.
func onTime(ctx context.Context, run func() (*Once, error)) (o *Once, err error) {
	for range mostLate {
		if o, err = run(); !errors.Is(err, peer.ErrLate) || ctx.Err() != nil {
			break
		}
	}
	return o, err
}
