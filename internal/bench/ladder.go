package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"levee/examples"
	"levee/internal/bench/option"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
)

// Options of a ladder. The zero value measures all rungs, both families, for about five minutes.
type Options struct {
	Policy     []byte // text of levee's policy; nil for the demo policy, of which the peers have the rules
	PolicyName string
	Rungs      []string // names, empty for all
	// Families that are measured, IPv4 and IPv6; empty for both. The figures of a rung are those of
	// the first, and by_family has all.
	Families []string
	// Traffic names the floods of the mix (TrafficNames); empty for udp alone, which is the only one that
	// the application's rungs can take.
	Traffic  []string
	Rounds   int           // 0 for 16, quick 6; fewer than 6 have no 95 % interval of a median
	Window   time.Duration // 0 for 400 ms, quick 150 ms
	Warmup   time.Duration // 0 for 100 ms, quick 50 ms
	Attempts int           // at a round that is disturbed, 0 for 3
	Quick    bool          // few short windows: a look, not a figure to quote
	// Budget is the time after which no round is tried again, and none begun beyond the sixth; 0 for no bound.
	Budget  time.Duration
	Seed    uint64 // of the floods
	Command string // to repeat it, for the report
	// Progress, if given, is told what is measured now and how much is done.
	Progress func(doing string, done, total int)
	// During, if given, watches each window (during.go).
	During func(r Receiver, wait func() error) error
}

// Limits of Options.
const (
	minRounds = option.MinRounds
	maxRounds = option.MaxRounds
	MinWindow = 50 * time.Millisecond
	MaxWindow = time.Minute
)

// defaults are what is measured if nothing else is said.
type defaults struct {
	rounds         int
	window, warmup time.Duration
}

// As long windows as six minutes have room for, and rather more rounds than longer windows, because what
// disturbs this kind of machine comes and goes within seconds (decision 0018). Comparisons of few
// things have the time for long ones.
var (
	full      = defaults{16, 400 * time.Millisecond, 100 * time.Millisecond}
	quick     = defaults{6, 150 * time.Millisecond, 50 * time.Millisecond}
	long      = defaults{6, time.Second, 300 * time.Millisecond}
	longQuick = defaults{6, 250 * time.Millisecond, 150 * time.Millisecond}
)

func (o *Options) complete() error {
	if o.Quick {
		return o.completeWith(quick)
	}
	return o.completeWith(full)
}

func (o *Options) completeWith(d defaults) error {
	if o.Policy == nil {
		o.Policy, o.PolicyName = examples.Demo, examples.DemoName
	}
	if o.Rounds == 0 {
		o.Rounds = d.rounds
	}
	if err := option.Rounds(o.Rounds); err != nil {
		return err
	}
	if o.Attempts == 0 {
		o.Attempts = maxAttempts
	}
	if o.Attempts < 1 || o.Attempts > maxRounds {
		return option.Wrongf("%d attempts at a round: there must be 1 to %d", o.Attempts, maxRounds)
	}
	if o.Window == 0 {
		o.Window = d.window
	}
	if o.Warmup == 0 {
		o.Warmup = d.warmup
	}
	if o.Warmup < 0 || o.Warmup > MaxWindow {
		return option.Wrongf("%v of warm-up: it lasts %v at most", o.Warmup, MaxWindow)
	}
	if err := option.Window(o.Window, MinWindow, MaxWindow); err != nil {
		return err
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	return errors.Join(
		choose(&o.Families, "family", []string{IPv4, IPv6}, nil),
		choose(&o.Traffic, "flood", TrafficNames, []string{"udp"}))
}

// choose checks a choice and puts it into the order of the list; none is what is usual, or all.
func choose(chosen *[]string, what string, list, usual []string) error {
	if len(*chosen) == 0 {
		*chosen = usual
	}
	if len(*chosen) == 0 {
		*chosen = list
	}
	if err := option.Known(what, *chosen, list); err != nil {
		return err
	}
	*chosen = slices.DeleteFunc(slices.Clone(list), func(l string) bool { return !slices.Contains(*chosen, l) })
	return nil
}

// Ladder measures the rungs. It needs root and two cores. An error means that there is no report, except
// when ctx ends: then the report, which is marked incomplete, has what was measured until then, and
// the error matches ctx's. A rung that could not be measured says so in the report instead.
func Ladder(ctx context.Context, o Options) (*Report, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	entries, err := o.rungs()
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if _, err := contender.Resolve(o.PolicyName, o.Policy); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root: sudo levee bench ladder")
	}
	if !lab.HaveIPv6() {
		o.Families = slices.DeleteFunc(o.Families, func(f string) bool { return f == IPv6 })
		if len(o.Families) == 0 {
			return nil, kernel.Refuse(nil, "this kernel runs without IPv6: measure --family 4")
		}
	}
	return o.inLab(ctx, func(b *bench) (*Report, []contender.Defence, error) {
		if err := b.listen(floodPort, true); err != nil {
			return nil, nil, err
		}
		r := newReport(&o, b)
		var defences []contender.Defence
		for _, e := range entries {
			g := &Rung{Name: e.Name(), Group: e.group, What: e.Describe(), Rules: e.Rules(), Windows: []Window{}}
			if err := o.unfit(e); err != nil {
				g.Missing, g.absent = err.Error(), true
			}
			r.Rungs = append(r.Rungs, g)
			defences = append(defences, e.Defence)
		}
		return r, defences, nil
	})
}

// inLab measures in a lab of its own what prepare lists, and summarises it.
func (o *Options) inLab(ctx context.Context, prepare func(*bench) (*Report, []contender.Defence, error)) (r *Report, err error) {
	// The lab stays for the tidying up after an interrupted window; Close removes it.
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	b, err := newBench(l, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }() // before the lab
	r, defences, err := prepare(b)
	if err != nil {
		return nil, err
	}
	err = b.pinned(func() error { return b.rounds(ctx, defences, r) })
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	r.Incomplete = err != nil
	r.summarise()
	return r, err
}

// rounds goes through the rungs forwards and backwards in turn, so that a drift of the machine falls on
// all alike. Where the first round gives no figure to any rung, there is no second.
func (b *bench) rounds(ctx context.Context, defences []contender.Defence, r *Report) error {
	total := b.Rounds * len(defences)
	begun := time.Now()
	for round := range b.Rounds {
		if b.outOfTime(time.Since(begun), round) {
			r.Caveats = append(r.Caveats, fmt.Sprintf("%d rounds of %d: the time was up", round, r.Rounds))
			r.Rounds = round
			break
		}
		for n := range defences {
			i := n
			if round%2 == 1 {
				i = len(defences) - 1 - n
			}
			done := round*len(defences) + n
			b.Progress(fmt.Sprintf("round %d of %d: %s", round+1, b.Rounds, defences[i].Name()), done, total)
			if r.Rungs[i].Missing != "" {
				continue
			}
			late := func(share float64) bool { return b.late(time.Since(begun), done, total, share) }
			if err := b.oneRung(ctx, defences[i], round, r.Rungs[i], late, r.home()); err != nil {
				return err
			}
		}
		if round == 0 && !slices.ContainsFunc(r.Rungs, (*Rung).hasGood) {
			b.Progress("done", total, total)
			return nil // the report says why
		}
	}
	return b.makeUp(ctx, defences, r, begun)
}

// oneRung measures one rung in one round; its errors are the rung's, except that ctx ended.
func (b *bench) oneRung(ctx context.Context, d contender.Defence, round int, g *Rung, late func(share float64) bool, home home) error {
	err := b.round(ctx, d, round, g, late, home)
	if ctx.Err() != nil {
		return fmt.Errorf("bench: interrupted: %w", ctx.Err())
	}
	if err != nil {
		g.Missing, g.absent = oneLine(err), errors.Is(err, contender.ErrMissing)
	}
	return nil
}

// makeUp gives rungs that lost rounds further ones, in what the budget has left.
func (b *bench) makeUp(ctx context.Context, defences []contender.Defence, r *Report, begun time.Time) error {
	total := r.Rounds * len(defences)
	pace := time.Since(begun) / time.Duration(max(total, 1))
	for extra := range r.Rounds {
		lacking, home := 0, r.home()
		lacks := r.lostRounds
		if slices.ContainsFunc(r.Rungs, func(g *Rung) bool { return g.Missing == "" && r.noFigure(g, home) }) {
			lacks = r.noFigure // these come first
		}
		for i, g := range r.Rungs {
			if g.Missing != "" || !lacks(g, home) || time.Since(begun)+2*pace > b.Budget {
				continue
			}
			lacking++
			b.Progress("a round more: "+g.Name, total, total)
			if err := b.oneRung(ctx, defences[i], r.Rounds+extra, g, func(float64) bool { return true }, r.home()); err != nil {
				return err
			}
		}
		if lacking == 0 {
			break
		}
	}
	b.Progress("done", total, total)
	return nil
}

// lostRounds tells whether a rung has fewer rounds, with the cores at home and not shared, than a figure of each family
// needs, and an interval of its quartile.
func (r *Report) lostRounds(g *Rung, home home) bool {
	wanted := max(r.needed(), min(r.Rounds, quartileRounds))
	return slices.ContainsFunc(r.families(), func(f string) bool { return r.figures(g, f, home).placed < wanted })
}

// noFigure tells whether a rung has fewer rounds, wherever the cores were, than a figure of each family needs.
func (r *Report) noFigure(g *Rung, home home) bool {
	return slices.ContainsFunc(r.families(), func(f string) bool { return r.figures(g, f, home).valid < r.needed() })
}

// outOfTime tells whether one round more would exceed the budget, once there are enough for an interval.
func (b *bench) outOfTime(elapsed time.Duration, round int) bool {
	return b.Budget > 0 && round >= minRounds && elapsed/time.Duration(round)*time.Duration(round+1) > b.Budget
}

// late tells whether a try more would exceed a share of the budget, the rest going on at the pace seen.
func (b *bench) late(elapsed time.Duration, done, total int, share float64) bool {
	if b.Budget == 0 {
		return false
	}
	pace := elapsed / time.Duration(done+1)
	return float64(elapsed+pace*time.Duration(total-done)) > share*float64(b.Budget)
}

// round measures one rung once; floods whose window has no figure are tried again, once also those with the cores elsewhere
// or shared (which may last; makeUp tries later) and those that are not saturated because the generator paused. So is what failed,
// unless a program is missing. What was measured before is kept.
func (b *bench) round(ctx context.Context, d contender.Defence, round int, g *Rung, late func(share float64) bool, home home) error {
	done := map[string]bool{}
	for attempt := range b.Attempts {
		windows, err := b.visit(ctx, d, func(t traffic) bool { return !done[t.family] })
		again, share := map[string]bool{}, forComfort
		for _, w := range windows {
			w.Round, w.Attempt = round, attempt
			g.Windows = append(g.Windows, w)
			if len(w.Invalid) > 0 {
				share = 1
			}
			again[w.Family] = again[w.Family] || len(w.Invalid) > 0 || attempt == 0 && (w.away(home) || w.paused())
		}
		if err != nil {
			if attempt == b.Attempts-1 || errors.Is(err, contender.ErrMissing) || sleep(ctx, retryPause) != nil {
				return err
			}
			continue
		}
		for family, a := range again {
			done[family] = !a
		}
		if !slices.ContainsFunc(b.mix, func(t traffic) bool { return !done[t.family] }) || late(share) {
			break
		}
	}
	return nil
}

// forComfort is the share of the budget that tries at rounds with a figure may take: the rest is for those that have none.
const forComfort = 0.9

// retryPause is how long whatever made an installation fail may take to go away: other users of a tool that
// locks itself, for the most part.
const retryPause = 200 * time.Millisecond
