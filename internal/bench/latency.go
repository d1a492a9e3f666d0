package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"levee/internal/bench/option"
	"levee/internal/host"
	"levee/internal/kernel"
	"levee/internal/lab/contender"
)

// LatencyOptions of Latency. The zero value takes about eight minutes.
type LatencyOptions struct {
	Rungs  []string      // names, empty for all
	Loads  []float64     // of the flood in packets a second; empty for 0, 100 k, 500 k, 1 M and 2 M
	Probes float64       // a second, 0 for 10,000
	Rounds int           // 0 for 6, fewer have no 95 % interval
	Window time.Duration // of probing, 0 for 2 s, quick 400 ms
	Quick  bool
	Seed   uint64
	// Command repeats it, for the report.
	Command  string
	Progress func(doing string, done, total int)
}

// Limits of LatencyOptions.
const (
	maxProbes = 50_000 // a second: more would be a load of their own
	minLoad   = 1000   // packets a second of a flood
	maxLoad   = 20_000_000
	maxLoads  = 20
)

func (o *LatencyOptions) complete() error {
	if len(o.Loads) == 0 {
		o.Loads = []float64{0, 100e3, 500e3, 1e6, 2e6}
	}
	if o.Probes == 0 {
		o.Probes = 10_000
	}
	if o.Rounds == 0 {
		o.Rounds = minRounds
	}
	if o.Window == 0 {
		o.Window = 2 * time.Second
		if o.Quick {
			o.Window = 400 * time.Millisecond
		}
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	slices.Sort(o.Loads)
	o.Loads = slices.Compact(o.Loads)
	if err := errors.Join(option.Rounds(o.Rounds), option.Window(o.Window, 100*time.Millisecond, MaxWindow)); err != nil {
		return err
	}
	if !(o.Probes >= 10 && o.Probes <= maxProbes) {
		return option.Wrongf("%.0f probes a second: 10 to %d; more would be a load of their own", o.Probes, maxProbes)
	}
	if len(o.Loads) > maxLoads {
		return option.Wrongf("%d loads: %d are enough", len(o.Loads), maxLoads)
	}
	for _, l := range o.Loads {
		if l != 0 && !(l >= minLoad && l <= maxLoad) {
			return option.Wrongf("a load of %.0f packets a second: 0, or %d to %d million", l, minLoad, maxLoad/1_000_000)
		}
	}
	return nil
}

// onePolicy drops the flood as the rungs of other tools do, by one rule.
var onePolicy = fmt.Appendf(nil, "drop udp port %d as \"flood\"\ndefault pass\n", floodPort)

// latencyRungs are the places whose round trips are compared.
func latencyRungs() []contender.Defence {
	return []contender.Defence{
		contender.Levee("one-rule", onePolicy),
		contender.NFTOneRule(floodPort), contender.IPTablesRaw(floodPort), contender.IPTablesInput(floodPort), contender.Recvmmsg(),
	}
}

// LatencyNames are the names of the rungs.
func LatencyNames() []string { return defenceNames(latencyRungs()) }

// LatencyReport is the outcome.
type LatencyReport struct {
	LatencyOptions
	Started    time.Time
	Incomplete bool
	Machine    host.Info
	Rungs      []*LatencyRung
}

// LatencyRung is one place to drop the flood.
type LatencyRung struct {
	Name, What string
	Missing    string         // why it could not be measured at all
	Cells      []*LatencyCell // by load
}

// LatencyCell is a rung under a load.
type LatencyCell struct {
	Load   float64
	Rounds []LatencyRound
}

// LatencyRound is one window.
type LatencyRound struct {
	Sent     float64 // packets a second that the generator reached
	Refused  float64 // share of the flood that found the receiver's ring full
	Steal    float64
	Took     []int64  // ns of each probe, lost for those that did not return
	Invalid  []string // why it does not count
	Attempts int
}

// Latency times the round trips of probes through each rung while a flood is dropped there, at each load. It
// needs root and two cores. An error means that there is no report, except when ctx ends: then the
// report has what was measured until then.
func Latency(ctx context.Context, o LatencyOptions) (r *LatencyReport, err error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	defences, err := chosen(latencyRungs(), o.Rungs)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root: sudo levee bench latency")
	}
	b, leave, err := enter(ctx, Options{Rounds: o.Rounds, Window: o.Window, Seed: o.Seed}, floodPort, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	if err := firstInWorld(b.world); err != nil {
		return nil, err
	}
	p, err := newProber(b, o.Probes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	r = &LatencyReport{LatencyOptions: o, Started: time.Now().UTC().Truncate(time.Second), Machine: host.Fingerprint(b.receiverCPU)}
	for _, d := range defences {
		g := &LatencyRung{Name: d.Name(), What: d.Describe()}
		for _, load := range o.Loads {
			g.Cells = append(g.Cells, &LatencyCell{Load: load})
		}
		r.Rungs = append(r.Rungs, g)
	}
	// The collector would stop the threads that time, and there is hardly anything for it to do.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	err = b.pinned(func() error { return r.measure(ctx, b, p, defences) })
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	r.Incomplete = err != nil
	return r, err
}

// measure goes through rungs and loads forwards and backwards in turn.
func (r *LatencyReport) measure(ctx context.Context, b *bench, p *prober, defences []contender.Defence) error {
	total := r.Rounds * len(defences) * len(r.Loads)
	done := 0
	for round := range r.Rounds {
		for n := range defences {
			i := n
			if round%2 == 1 {
				i = len(defences) - 1 - n
			}
			g := r.Rungs[i]
			if g.Missing != "" {
				done += len(r.Loads)
				continue
			}
			err := r.visit(ctx, b, p, defences[i], g, func(load float64) {
				r.Progress(fmt.Sprintf("round %d of %d: %s, flood of %g packets/s", round+1, r.Rounds, g.Name, load), done, total)
				done++
			})
			if ctx.Err() != nil {
				return fmt.Errorf("bench: interrupted: %w", ctx.Err())
			}
			if err != nil {
				g.Missing = oneLine(err)
			}
		}
	}
	r.Progress("done", total, total)
	return nil
}

// visit measures a rung once under each load.
func (r *LatencyReport) visit(ctx context.Context, b *bench, p *prober, d contender.Defence, g *LatencyRung, doing func(float64)) (err error) {
	site := contender.Site{Host: b.server, Device: b.device, Sink: b.sink}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx))) }()
	if err := d.Install(ctx, site); err != nil {
		return err
	}
	for _, c := range g.Cells {
		doing(c.Load)
		var w LatencyRound
		for attempt := range maxAttempts {
			if w, err = b.latencyRound(ctx, d, p, c.Load); err != nil {
				return err
			}
			if w.Attempts = attempt + 1; len(w.Invalid) == 0 {
				break
			}
		}
		c.Rounds = append(c.Rounds, w)
	}
	return nil
}

// A generator that misses its rate by more than this did not offer the load that the figure would stand for.
const maxRateError = 0.02

// latencyRound is one window: flood on, warm-up, probes, flood off.
func (b *bench) latencyRound(ctx context.Context, d contender.Defence, p *prober, load float64) (w LatencyRound, err error) {
	before, err := b.inspect()
	if err != nil {
		return w, err
	}
	if w.Invalid = before.broken(d.Hook(), false, false); len(w.Invalid) > 0 {
		return w, nil
	}
	cpu, err := b.cpuTimes()
	if err != nil {
		return w, err
	}
	if load > 0 {
		b.rate = load
		stop, wait := b.start(ctx, b.mix[0])
		defer func() {
			stop()
			sent, genErr := wait()
			if err = errors.Join(err, genErr); err == nil {
				w.flood(load, sent.Achieved, sent.Sent, sent.Refused)
				err = b.drained(ctx, 0)
			}
		}()
		if err := b.flowing(ctx); err != nil {
			return w, err
		}
	}
	// Also without a flood: for some milliseconds after an XDP program has come to a veth device packets are lost.
	if err := sleep(ctx, b.Warmup); err != nil {
		return w, err
	}
	if w.Took, err = p.round(ctx, b.Window); err != nil {
		return w, err
	}
	after, err := b.cpuTimes()
	if err != nil {
		return w, err
	}
	if w.Steal = after.stolen(cpu); w.Steal > maxSteal {
		w.Invalid = append(w.Invalid, fmt.Sprintf("the hypervisor took %.1f %% of the time", 100*w.Steal))
	}
	return w, nil
}

// flood enters what the generator did.
func (w *LatencyRound) flood(load, achieved float64, sent, refused uint64) {
	w.Sent = achieved
	if sent > 0 {
		w.Refused = float64(refused) / float64(sent)
	}
	if achieved < (1-maxRateError)*load || achieved > (1+maxRateError)*load {
		w.Invalid = append(w.Invalid, fmt.Sprintf("the generator sent %.0f packets/s instead of %.0f", achieved, load))
	}
}

func (b *bench) cpuTimes() (cpuTimes, error) {
	text, err := b.procStat()
	if err != nil {
		return cpuTimes{}, err
	}
	return parseCPU(text, b.receiverCPU)
}
