package flood

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"levee/internal/bench"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
)

// Rung is one place to drop packets, or one filter, and what was measured of it.
type Rung struct {
	Name string `json:"name"`
	What string `json:"what"`
	// why the rung could not be measured at all
	Missing string   `json:"missing,omitempty"`
	Windows []Window `json:"-"`
	// its program is not installed, or it is not for this flood
	Absent  bool              `json:"-"`
	Defence contender.Defence `json:"-"`
}

// NewRung returns the rung of a defence.
func NewRung(d contender.Defence) *Rung {
	return &Rung{Name: d.Name(), What: d.Describe(), Windows: []Window{}, Defence: d}
}

// OpenFor makes a lab for the measurement of that name, and the rungs that are chosen of some
// defences, all if none is. wrong is what is wrong with the options.
func OpenFor(ctx context.Context, name string, o *Options, wrong error, chosen []string,
	all []contender.Defence) (*Lab, []*Rung, error) {
	defences, unknown := bench.Choose("rung", chosen, all, contender.Defence.Name)
	if err := bench.Ready(name, wrong, unknown); err != nil {
		return nil, nil, err
	}
	var rungs []*Rung
	for _, d := range defences {
		rungs = append(rungs, NewRung(d))
	}
	l, err := Open(ctx, o)
	return l, rungs, err
}

// Comparison is rungs under the same traffic.
type Comparison struct {
	Rungs    []*Rung
	Traffic  []Traffic
	Families []string // of the traffic; empty where traces are measured
	Rounds   int      // the rounds asked for; once measured, the rounds for which there was time
	// Each: the windows of one traffic stand by themselves, and a disturbed one is tried again
	// wherever the cores are. Else those of a family belong together.
	Each       bool
	Incomplete bool // interrupted
	// Circumstances are those of Measure's lab.
	Circumstances []string
}

// Measure compares defences under a trace, of which every one drops all: frames that are sent in
// turn, and whose Ethernet addresses become those of the lab. An error means that there is nothing,
// except when ctx ends: then there is what was measured until then. It needs root and two cores.
func Measure(ctx context.Context, o Options, defences []contender.Defence, name, what string,
	frames [][]byte) (c *Comparison, err error) {
	if err := o.Complete(Few); err != nil {
		return nil, err
	}
	l, err := Open(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	c = &Comparison{Rounds: o.Rounds, Circumstances: l.Circumstances(),
		Traffic: []Traffic{{Name: name, What: what, Frames: &gen.Frames{Frames: frames}}}}
	for _, d := range defences {
		c.Rungs = append(c.Rungs, NewRung(d))
	}
	return c, l.Compare(ctx, c)
}

// Compare measures all rungs in rounds. Where the first round gives no figure to any rung, there is
// no second. An error leaves what was measured; it is of ctx if c is incomplete.
func (l *Lab) Compare(ctx context.Context, c *Comparison) error {
	err := l.Pinned(func() error { return l.compare(ctx, c) })
	c.Incomplete = err != nil && ctx.Err() != nil
	return err
}

func (l *Lab) compare(ctx context.Context, c *Comparison) error {
	total, begun := c.Rounds*len(c.Rungs), time.Now()
	for round := range c.Rounds {
		if l.outOfTime(time.Since(begun), round) {
			c.Rounds = round
			break
		}
		err := EachRung(ctx, c.Rungs, round, func(_, done int, g *Rung) error {
			l.Tell(fmt.Sprintf("round %d of %d: %s", round+1, l.Rounds, g.Name), done, total)
			late := func(share float64) bool {
				return l.late(time.Since(begun), done, total,
					share)
			}
			return l.round(ctx, c, g, round, late)
		})
		if err != nil {
			return err
		}
		if round == 0 && !slices.ContainsFunc(c.Rungs, (*Rung).hasGood) {
			l.Tell("done", total, total)
			return nil // the report says why
		}
	}
	return l.makeUp(ctx, c, begun)
}

// EachRung measures all rungs once, forwards and backwards in turn. done is how many of all rounds'
// rungs are. What goes wrong with a rung is the rung's, which is not measured any more; the end of
// ctx is an error.
func EachRung(ctx context.Context, rungs []*Rung, round int,
	measure func(i, done int, g *Rung) error) error {
	for n, i := range bench.InTurn(round, len(rungs)) {
		g := rungs[i]
		if g.Missing != "" {
			continue
		}
		err := measure(i, round*len(rungs)+n, g)
		if stopped := bench.Interrupted(ctx); stopped != nil {
			return stopped
		}
		if err != nil {
			g.Missing, _, _ = strings.Cut(err.Error(), "\n")
			g.Absent = errors.Is(err, contender.ErrMissing)
		}
	}
	return nil
}

// makeUp gives rungs that lost rounds further ones, in what the budget has left.
func (l *Lab) makeUp(ctx context.Context, c *Comparison, begun time.Time) error {
	total := c.Rounds * len(c.Rungs)
	pace := time.Since(begun) / time.Duration(max(total, 1))
	for extra := range c.Rounds {
		lacking := 0
		r, lacks := c.Reference(), c.lostRounds
		if slices.ContainsFunc(c.Rungs,
			func(g *Rung) bool { return g.Missing == "" && c.noFigure(g, r) }) {
			lacks = c.noFigure // these come first
		}
		for i, g := range c.Rungs {
			if g.Missing != "" || !lacks(g, r) || time.Since(begun)+2*pace > l.Budget {
				continue
			}
			lacking++
			err := EachRung(ctx, c.Rungs[i:i+1], 0, func(_, _ int, g *Rung) error {
				l.Tell("a round more: "+g.Name, total, total)
				return l.round(ctx, c, g, c.Rounds+extra, func(float64) bool { return true })
			})
			if err != nil {
				return err
			}
		}
		if lacking == 0 {
			break
		}
	}
	l.Tell("done", total, total)
	return nil
}

// lostRounds tells whether a rung has fewer rounds, with the cores as in the reference, than a
// figure of each family needs, and an interval of its quartile.
func (c *Comparison) lostRounds(g *Rung, r Reference) bool {
	wanted := max(c.needed(), min(c.Rounds, quartileRounds))
	return slices.ContainsFunc(c.families(),
		func(f string) bool { return c.figures(g, f, r).Placed < wanted })
}

// noFigure tells whether a rung has fewer rounds, wherever the cores were, than a figure of each
// family needs.
func (c *Comparison) noFigure(g *Rung, r Reference) bool {
	return slices.ContainsFunc(c.families(),
		func(f string) bool { return c.figures(g, f, r).valid < c.needed() })
}

// outOfTime tells whether one round more would exceed the budget, once there are enough for an
// interval.
func (l *Lab) outOfTime(elapsed time.Duration, round int) bool {
	return l.Budget > 0 && round >= bench.MinRounds &&
		elapsed/time.Duration(round)*time.Duration(round+1) > l.Budget
}

// late tells whether a try more would exceed a share of the budget, the rest going on at the pace
// seen.
func (l *Lab) late(elapsed time.Duration, done, total int, share float64) bool {
	if l.Budget == 0 {
		return false
	}
	pace := elapsed / time.Duration(done+1)
	return float64(elapsed+pace*time.Duration(total-done)) > share*float64(l.Budget)
}

// round measures one rung once. Floods whose window has no figure are tried again; once also those
// with the cores unlike the reference (which may last; makeUp tries later) and those that are not
// saturated because the generator paused. So is what failed, unless a program is missing. What was
// measured before is kept.
func (l *Lab) round(ctx context.Context, c *Comparison, g *Rung, round int,
	late func(share float64) bool) error {
	reference, done := c.Reference(), map[string]bool{}
	for attempt := range l.Attempts {
		again, share := map[string]bool{}, forComfort
		err := l.Behind(ctx, g.Defence, func() error {
			for i := range c.Traffic {
				t := &c.Traffic[i]
				together := t.Family
				if c.Each {
					together = t.Name
				}
				if done[together] {
					continue
				}
				w, err := l.Window(ctx, g.Defence, t)
				if err != nil {
					return err
				}
				w.Round, w.Attempt = round, attempt
				g.Windows = append(g.Windows, *w)
				if len(w.Invalid) > 0 {
					share = 1
				}
				unlike := !c.Each && attempt == 0 && (w.unlike(reference) || w.paused())
				again[together] = again[together] || len(w.Invalid) > 0 || unlike
			}
			return nil
		})
		if err != nil {
			if attempt == l.Attempts-1 || errors.Is(err, contender.ErrMissing) ||
				lab.Sleep(ctx, retryPause) != nil {
				return err
			}
			continue
		}
		left := false
		for together, a := range again {
			done[together], left = !a, left || a
		}
		if !left || late(share) {
			break
		}
	}
	return nil
}

// forComfort is the share of the budget that tries at rounds with a figure may take: the rest is
// for those that have none.
const forComfort = 0.9

// retryPause is the longest time until the cause of a failed installation has gone: other users of
// a tool that locks itself, for the most part.
const retryPause = 200 * time.Millisecond

// Reference returns the reference of the windows until now.
func (c *Comparison) Reference() Reference { return referenceOf(c.AllWindows()) }

// AllWindows returns those of all rungs.
func (c *Comparison) AllWindows() iter.Seq[*Window] {
	return func(yield func(*Window) bool) {
		for _, g := range c.Rungs {
			for i := range g.Windows {
				if !yield(&g.Windows[i]) {
					return
				}
			}
		}
	}
}

// families returns those measured; one without a name where that was not the question.
func (c *Comparison) families() []string {
	if len(c.Families) == 0 {
		return []string{""}
	}
	return c.Families
}

// hasGood tells whether the rung has a window with a figure.
func (g *Rung) hasGood() bool {
	return slices.ContainsFunc(g.Windows, func(w Window) bool { return len(w.Invalid) == 0 })
}

// tracks tells whether conntrack is in the path of a defence.
func tracks(d contender.Defence) bool {
	t, ok := d.(contender.Tracker)
	return ok && t.Tracks()
}
