// Package latency times round trips of probes through places that drop a flood, beside the flood.
//
// In go Options, out comes a Report with percentiles, histograms and the share of probes that
// returned, for each rung and load. Probes are an open loop: each counts from the time at which it
// should have been sent. The flood and its conditions are those of package flood.
package latency

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/bench/rules"
	"levee/internal/bench/workload"
	"levee/internal/lab/contender"
	"levee/internal/lab/echo"
	"levee/internal/usage"
)

// Options of a measurement. The zero value takes about eight minutes.
type Options struct {
	flood.Options
	Rungs  []string  // names, empty for all
	Loads  []float64 // of the flood in packets a second; empty for 0, 100 k, 500 k, 1 M and 2 M
	Probes float64   // a second, 0 for 10,000
	// Rules counts the rules of each place, of which the last one drops the flood and none before
	// matches flood or probes; 0 for the one that drops.
	Rules int
}

// Limits of Options.
const (
	maxProbes = 50_000 // a second: more would be a load of their own
	maxLoads  = 20
	attempts  = 3 // at a round
	// more, one by one, take longer than the probes' patience for a flood that arrives
	maxRules = 10_000
)

var usual = flood.Usual{
	Usual: bench.Usual{Rounds: 6, Window: 2 * time.Second, QuickWindow: 400 * time.Millisecond,
		Shortest: 100 * time.Millisecond, Longest: flood.MaxWindow},
	Warmup: flood.Many.Warmup,
}

func (o *Options) complete() error {
	if len(o.Loads) == 0 {
		o.Loads = []float64{0, 100e3, 500e3, 1e6, 2e6}
	}
	if o.Probes == 0 {
		o.Probes = 10_000
	}
	slices.Sort(o.Loads)
	o.Loads = slices.Compact(o.Loads)
	if err := o.Options.Complete(usual); err != nil {
		return err
	}
	if !(o.Probes >= 10 && o.Probes <= maxProbes) {
		return usage.Wrongf("%.0f probes a second: 10 to %d; more would be a load of their own",
			o.Probes, maxProbes)
	}
	if len(o.Loads) > maxLoads {
		return usage.Wrongf("%d loads: %d are enough", len(o.Loads), maxLoads)
	}
	for _, l := range o.Loads {
		if l != 0 && !flood.SaneRate(l) {
			return usage.Wrongf("a load of %.0f packets a second: 0, or %d to %d million", l,
				flood.MinRate, flood.MaxRate/1_000_000)
		}
	}
	if o.Rules < 0 || o.Rules > maxRules {
		return usage.Wrongf("%d rules: 1 to %d", o.Rules, maxRules)
	}
	return nil
}

// defences returns the places whose round trips are compared.
func defences() []contender.Defence {
	return []contender.Defence{
		flood.OneRule(), contender.NFTOneRule(flood.Port), contender.IPTablesRaw(flood.Port),
		contender.IPTablesInput(flood.Port), contender.Recvmmsg(),
	}
}

// Names returns the names of the rungs.
func Names() []string { return bench.Names(defences(), contender.Defence.Name) }

// NamesBehind returns those of the rungs with many rules.
func NamesBehind() []string { return bench.Names(withRules(nil), contender.Defence.Name) }

// withRules returns the places with many rules, and the application without any.
func withRules(drawn []workload.Rule) (all []contender.Defence) {
	for _, c := range rules.Behind(drawn, flood.Port) {
		all = append(all, c)
	}
	return append(all, contender.Recvmmsg())
}

// places returns the places that the options name.
func (o *Options) places() ([]contender.Defence, error) {
	if o.Rules == 0 {
		return defences(), nil
	}
	drawn, err := unmatched(o.Rules-1, o.Seed)
	return withRules(drawn), err
}

// unmatched draws rules of the shape fw that match neither flood nor probes, nor answers to them.
func unmatched(n int, seed uint64) ([]workload.Rule, error) {
	drawn, err := workload.Rules("fw", min(2*n+100, workload.MaxRules), seed)
	if err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(drawn, met)
	if len(out) < n {
		return nil, fmt.Errorf("of the rules that were drawn only %d do not match: fewer can be "+
			"had", len(out))
	}
	return out[:n], nil
}

// What the receiver gets: from the generator's sources and the lab's own, to its address.
var (
	toReceiver = netip.AddrFrom4([4]byte{198, 18, 0, 1})
	ownSources = netip.MustParsePrefix("198.18.0.0/15")
)

// met reports whether a rule may match a datagram of the flood or a probe, from any port.
func met(r workload.Rule) bool {
	from := r.Src.Overlaps(ownSources) ||
		slices.ContainsFunc(flood.Sources(flood.IPv4), r.Src.Overlaps)
	to := func(port uint16) bool { return r.DstPort.Lo <= port && port <= r.DstPort.Hi }
	return from && r.Dst.Contains(toReceiver) && (r.Proto == 0 || r.Proto == unix.IPPROTO_UDP) &&
		(to(flood.Port) || to(echo.Port))
}

// Report is the outcome.
type Report struct {
	bench.Head
	Window time.Duration
	Probes float64
	Loads  []float64
	Rules  int // at each place; 0 for the one that drops
	Rungs  []*Rung
}

// Rung is one place to drop the flood.
type Rung struct {
	*flood.Rung
	Cells []*Cell // by load
}

// Cell is a rung under a load.
type Cell struct {
	Load   float64
	Rounds []Round
}

// Round is one window.
type Round struct {
	Sent    float64 // packets a second that the generator reached
	Refused float64 // share of the flood that found the receiver's ring full
	Steal   float64
	Took    []int64  // ns of each probe, echo.Lost for those that did not return
	Invalid []string // why it does not count
}

// Run times the round trips of probes through each rung while a flood is dropped there, at each
// load. It needs root and two cores. An error means that there is no report, except when ctx ends:
// then the report has what was measured until then.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	wrong := o.complete()
	places := defences()
	if wrong == nil {
		places, wrong = o.places()
	}
	l, rungs, err := flood.OpenFor(ctx, "latency", &o.Options, wrong, o.Rungs, places)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Listen(flood.Port, false); err != nil {
		return nil, err
	}
	p, err := newProber(l, o.Probes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.echo.Close()) }()
	r = &Report{Head: o.Head(l.ReceiverCPU, circumstances(l)...), Window: o.Window,
		Probes: o.Probes, Loads: o.Loads, Rules: o.Rules}
	if o.Rules > 1 {
		r.Caveats = append(r.Caveats, fmt.Sprintf("each place but the application has %d "+
			"rules: %d of the shape fw of ClassBench, of which none matches flood or probes, and "+
			"one that drops the flood; probes meet them all", o.Rules, o.Rules-1))
	}
	r.WarnOfQuick()
	for _, d := range rungs {
		g := &Rung{Rung: d}
		for _, load := range o.Loads {
			g.Cells = append(g.Cells, &Cell{Load: load})
		}
		r.Rungs = append(r.Rungs, g)
	}
	// The collector would stop the threads that time, and there is hardly anything for it to do.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	err = l.Pinned(func() error { return r.measure(ctx, l, p, rungs) })
	return bench.Ended(ctx, r, &r.Head, err)
}

// measure goes through rungs and, behind each, loads.
func (r *Report) measure(ctx context.Context, l *flood.Lab, p *prober, rungs []*flood.Rung) error {
	udp := flood.Floods([]string{"udp"}, flood.IPv4, l.In())[0]
	total := r.Rounds * len(rungs) * len(r.Loads)
	for round := range r.Rounds {
		err := flood.EachRung(ctx, rungs, round, func(i, done int, g *flood.Rung) error {
			return l.Behind(ctx, g.Defence, func() error {
				for n, c := range r.Rungs[i].Cells {
					l.Tell(fmt.Sprintf("round %d of %d: %s, flood of %g packets/s", round+1,
						r.Rounds, g.Name, c.Load), done*len(r.Loads)+n, total)
					if err := c.round(ctx, l, g.Defence, p, udp); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	l.Tell("done", total, total)
	return nil
}

// A generator that misses its rate by more than this did not offer the load of the figure.
const maxRateError = 0.02

// round takes one window; a disturbed one is tried again.
func (c *Cell) round(ctx context.Context, l *flood.Lab, d contender.Defence, p *prober,
	t flood.Traffic) (err error) {
	traffic := &t
	if t.Rate = c.Load; c.Load == 0 {
		traffic = nil
	}
	var w Round
	for range attempts {
		w = Round{}
		sent, steal, invalid, err := l.Beside(ctx, d, traffic, func() (err error) {
			w.Took, err = p.round(ctx, l.Options.Window)
			return err
		})
		if err != nil {
			return err
		}
		w.Steal, w.Invalid = steal, invalid
		if traffic != nil && w.Took != nil {
			w.flood(c.Load, sent.Achieved, sent.Sent, sent.Refused)
		}
		if len(w.Invalid) == 0 {
			break
		}
	}
	c.Rounds = append(c.Rounds, w)
	return nil
}

// flood enters what the generator did.
func (w *Round) flood(load, achieved float64, sent, refused uint64) {
	w.Sent = achieved
	if sent > 0 {
		w.Refused = float64(refused) / float64(sent)
	}
	if achieved < (1-maxRateError)*load || achieved > (1+maxRateError)*load {
		w.Invalid = append(w.Invalid, fmt.Sprintf("the generator sent %.0f packets/s instead "+
			"of %.0f", achieved, load))
	}
}
