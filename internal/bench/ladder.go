package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"levee/examples"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/peer"
)

// Options of a ladder. The zero value measures all rungs with the demo policy for about two minutes.
type Options struct {
	Policy     []byte // text of levee's policy; nil for the demo policy, of which the peers have the rules
	PolicyName string
	Rungs      []string      // names, empty for all
	Rounds     int           // 0 for 6; fewer have no 95 % interval of a median
	Window     time.Duration // 0 for 1 s
	Warmup     time.Duration // 0 for 300 ms
	Attempts   int           // at a round that is disturbed, 0 for 3
	Quick      bool          // windows of 250 ms: a look, not a figure to quote
	Seed       uint64        // of the floods
	Command    string        // to repeat it, for the report
	// Progress, if given, is told what is measured now and how much is left.
	Progress func(doing string, done, total int)
	// During, if given, watches each window (during.go).
	During func(cpu int, wait func() error) error
}

// Limits of Options.
const (
	minRounds   = 6 // of fewer values no order statistic bounds the median at 95 %
	maxRounds   = 1000
	quickWindow = 250 * time.Millisecond
	maxWindow   = time.Minute
)

func (o *Options) complete() error {
	if o.Policy == nil {
		o.Policy, o.PolicyName = examples.Demo, examples.DemoName
	}
	if o.Rounds == 0 {
		o.Rounds = minRounds
	}
	if o.Rounds < minRounds || o.Rounds > maxRounds {
		return fmt.Errorf("%d rounds: a 95 %% interval of a median needs %d or more (and %d are enough)", o.Rounds, minRounds, maxRounds)
	}
	if o.Attempts == 0 {
		o.Attempts = maxAttempts
	}
	if o.Attempts < 1 || o.Attempts > maxRounds {
		return fmt.Errorf("%d attempts at a round: there must be 1 to %d", o.Attempts, maxRounds)
	}
	if o.Window == 0 {
		o.Window = time.Second
		if o.Quick {
			o.Window = quickWindow
		}
	}
	if o.Warmup == 0 {
		o.Warmup = 300 * time.Millisecond
		if o.Quick {
			o.Warmup = 150 * time.Millisecond
		}
	}
	if o.Window < 50*time.Millisecond || o.Window > maxWindow || o.Warmup < 0 || o.Warmup > maxWindow {
		return fmt.Errorf("windows of %v after %v of warm-up: windows last 50ms to %v, warm-up at most %[3]v", o.Window, o.Warmup, maxWindow)
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	return nil
}

// rungs are the places that the ladder knows, fastest first.
func (o *Options) rungs() ([]peer.Defence, error) {
	all := []peer.Defence{peer.XDPDrop(), peer.Levee(o.PolicyName, o.Policy), peer.XDPFilter(), peer.NFT(), peer.IPTables()}
	if len(o.Rungs) == 0 {
		return all, nil
	}
	var names []string
	for _, d := range all {
		names = append(names, d.Name())
	}
	for _, n := range o.Rungs {
		if !slices.Contains(names, n) {
			return nil, fmt.Errorf("there is no rung %q: the rungs are %q", n, names)
		}
	}
	return slices.DeleteFunc(all, func(d peer.Defence) bool { return !slices.Contains(o.Rungs, d.Name()) }), nil
}

// Ladder measures the rungs. It needs root and two cores. An error means that there is no report;
// a rung that could not be measured says so in the report instead.
func Ladder(ctx context.Context, o Options) (*Report, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	defences, err := o.rungs()
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if _, err := peer.Resolve(o.PolicyName, o.Policy); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root: sudo levee bench ladder")
	}
	// The lab stays for the tidying up after an interrupted window; Close removes it.
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	b, err := newBench(l, &o)
	if err != nil {
		return nil, err
	}
	r := newReport(&o, b)
	for _, d := range defences {
		r.Rungs = append(r.Rungs, &Rung{Name: d.Name(), What: d.Describe(), Rules: d.Rules(), Windows: []Window{}})
	}
	err = b.pinned(func() error { return b.rounds(ctx, defences, r) })
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r.summarise()
	return r, l.Close()
}

// rounds goes through the rungs forwards and backwards in turn, so that a drift of the machine falls on
// all alike. Where the first round gives no figure to any rung, there is no second.
func (b *bench) rounds(ctx context.Context, defences []peer.Defence, r *Report) error {
	total := b.Rounds * len(defences)
	for round := range b.Rounds {
		for n := range defences {
			i := n
			if round%2 == 1 {
				i = len(defences) - 1 - n
			}
			b.Progress(fmt.Sprintf("round %d of %d: %s", round+1, b.Rounds, defences[i].Name()), round*len(defences)+n, total)
			if r.Rungs[i].Missing != "" {
				continue
			}
			err := b.round(ctx, defences[i], round, r.Rungs[i])
			if ctx.Err() != nil {
				return fmt.Errorf("bench: interrupted: %w", ctx.Err())
			}
			if err != nil {
				r.Rungs[i].Missing, r.Rungs[i].absent = oneLine(err), errors.Is(err, peer.ErrMissing)
			}
		}
		if round == 0 && !slices.ContainsFunc(r.Rungs, (*Rung).hasGood) {
			break // the report says why
		}
	}
	b.Progress("done", total, total)
	return nil
}

// round measures one rung once; a round with a window that has no figure is tried again, and what was
// measured before is kept.
func (b *bench) round(ctx context.Context, d peer.Defence, round int, g *Rung) error {
	for attempt := range b.Attempts {
		windows, err := b.visit(ctx, d)
		if err != nil {
			return err
		}
		good := true
		for _, w := range windows {
			w.Round, w.Attempt = round, attempt
			g.Windows = append(g.Windows, w)
			good = good && len(w.Invalid) == 0
		}
		if good {
			break
		}
	}
	return nil
}
