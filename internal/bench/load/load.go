// Package load compares contenders that hold a set or rules: how long they take to load and to
// change, and packets a second of one core through a lab, by the rules of package flood.
//
// In go contenders, which say how each is loaded, switched off and on, changed and asked for its
// counter, and a trace of which every one drops all. Out come Results, with the charts and the text
// that show them. What takes long to load is loaded once and then switched off and on.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/lab/contender"
)

// Options of a measurement of sizes. Window is that of a flood, 0 for 1 s.
type Options struct {
	bench.Options
	Sizes       []int    // nil for the powers of ten
	Only        []string // structures and contenders by name, nil for all
	Attempts    int      // at a flood that is disturbed, 0 for 3
	SkipLab     bool     // no floods
	SkipLookups bool     // nothing but floods
	// Wire, if given, has floods come over a real card from another machine.
	Wire *flood.Wire

	Machine *bench.Observer // once Each has begun
	meter   *bench.Meter
	head    *bench.Head // of the report
	// of kinds of sets and rules, with a contender: the size that it did not load in time
	slow map[string]int
}

// Complete fills in what is usual and refuses what cannot be measured. most is the largest size.
func (o *Options) Complete(most int) error {
	if o.Sizes == nil {
		for n := 10; n <= most; n *= 10 {
			o.Sizes = append(o.Sizes, n)
		}
	}
	o.slow = map[string]int{}
	err := o.Options.Complete(bench.Usual{Rounds: bench.MinRounds + 1, Shortest: flood.MinWindow,
		Longest: flood.MaxWindow})
	if o.Wire != nil {
		err = errors.Join(err, o.Wire.Check())
	}
	return errors.Join(err, bench.CheckSizes(o.Sizes, most))
}

// Each measures cases one after the other; estimates are what each may take. What ends it early
// stands in the report, unless it is the first case that cannot be measured here: then there is no
// report.
func (o *Options) Each(ctx context.Context, name string, h *bench.Head, estimates []time.Duration,
	measure func(i int) error) (c *bench.Conditions, err error) {
	if err := bench.Ready(name); err != nil {
		return nil, err
	}
	machine, end, err := bench.Observe()
	if err != nil {
		return nil, err
	}
	defer func() { c, err = machine.Conditions(), errors.Join(err, end()) }()
	o.Machine, o.meter, o.head = machine, o.Meter(estimates), h
	for i := range estimates {
		o.meter.Next(i)
		err := measure(i)
		if err == nil {
			continue
		}
		if i == 0 && ctx.Err() == nil {
			return nil, err
		}
		after := fmt.Sprintf("after %d of %d cases", i, len(estimates))
		h.Incomplete = fmt.Sprintf("%s: %v", after, err)
		if stopped := bench.Interrupted(ctx); stopped != nil {
			h.Incomplete, err = after+": interrupted", stopped
		}
		return nil, fmt.Errorf("the report is incomplete: %w", err)
	}
	return nil, nil
}

// lookupShare is the part of a case that is done, by estimate, when its look-ups are and the lab
// begins.
const lookupShare = 0.3

// TellLookups says what is measured besides floods, and how much of that is done.
func (o *Options) TellLookups(doing string,
	share float64) {
	o.meter.Tell(doing, lookupShare*share)
}

// Rough times, for estimates: of a rung in a round besides its window, and of loading an entry or a
// rule.
const (
	estimateRung  = 500 * time.Millisecond
	EstimateEntry = 20 * time.Microsecond
)

// Estimate returns how long the lab takes for n contenders with so many entries.
func (o *Options) Estimate(n, size int) time.Duration {
	if o.SkipLab {
		return 0
	}
	window := o.Window
	if window == 0 {
		window = time.Second
	}
	load := min(time.Duration(size)*EstimateEntry, loadBudget)
	return time.Duration(n) * (time.Duration(o.Rounds)*(window+estimateRung) + load)
}

// Result is one contender with the set or the rules, under a flood of which it drops everything.
// Names of JSON fields stay once shipped.
type Result struct {
	Name string `json:"name"`
	What string `json:"what"`
	// MedianPPS is packets a second of one core, NsPerPacket that core's run time for each; both
	// with 95 % intervals, null where there is no figure, and then Missing or Why says why.
	MedianPPS   *float64      `json:"median_pps"`
	Interval    *[2]float64   `json:"interval"`
	AtLeast     bool          `json:"at_least"` // the generator was the limit
	NsPerPacket *float64      `json:"ns_per_packet"`
	NsInterval  *[2]float64   `json:"ns_interval"`
	LoadNs      *bench.Figure `json:"load_ns"` // from nothing to everything in force
	// that LoadNs comes from; in other rounds it was switched on and off
	Loads int `json:"loads"`
	// one change: by the contender's own command, of levee by its library
	UpdateNs   *bench.Figure `json:"update_ns"`
	AddsPerSec *bench.Figure `json:"adds_per_second,omitempty"`
	// growth of kernel memory while loading, median; below 100 KB it is noise
	Bytes   int64          `json:"bytes"`
	Missing string         `json:"missing,omitempty"`
	Why     []string       `json:"why,omitempty"`
	Windows []flood.Window `json:"windows"`
}

// Spec is a contender with a set or rules.
type Spec struct {
	Name, What string
	// where what was let through is seen next: contender.LocalIn for the first hook of iptables,
	// behind IP's own count
	Hook    contender.Hook
	Needs   [][2]string // programs, and the Debian packages that have them
	Most    int         // entries or rules beyond which it is not tried, 0 for any
	MostWhy string
	// Budget is the time for loading and changing over all rounds, 0 for loadBudget. A contender
	// that would exceed it stays loaded, and is only switched off and on.
	Budget time.Duration
	// writes what Install hands to the contender, which is not part of loading; nil for nothing
	Prepare func(s contender.Site)
	Install func(ctx context.Context, s contender.Site) error
	// Off and On take what is loaded out of force and put it back: both, or none if each round
	// loads anew.
	Off, On func(ctx context.Context, s contender.Site) error
	Change  func(ctx context.Context, s contender.Site) error // one single change; nil for none
	Rate    func(ctx context.Context, s contender.Site) (perSecond float64, err error)
	Dropped func(ctx context.Context, s contender.Site) (uint64, error)
	Remove  func(ctx context.Context, s contender.Site) error
}

// Contender is a contender.Defence that says how long it took.
type Contender struct {
	Spec
	site                 contender.Site
	installed            bool          // there is something to remove
	kept                 bool          // it is loaded, but off
	spent, last          time.Duration // on loading and changing: in all, and last
	loads, changes, adds []float64
	memory               []int64
	before               uint64 // of the counter, at Install
}

// New returns a contender as it is specified.
func New(s Spec) *Contender { return &Contender{Spec: s} }

// Plain returns a defence that loads no more than itself.
func Plain(d contender.Defence) Spec {
	return Spec{
		Name: d.Name(), What: d.Describe(), Hook: d.Hook(),
		Install: d.Install,
		Dropped: func(ctx context.Context, _ contender.Site) (uint64,
			error) {
			return d.Dropped(ctx)
		},
		Remove: func(ctx context.Context, _ contender.Site) error { return d.Remove(ctx) },
	}
}

func (c *Contender) Name() string         { return c.Spec.Name }
func (c *Contender) Describe() string     { return c.What }
func (c *Contender) Hook() contender.Hook { return c.Spec.Hook }
func (c *Contender) Rules() string        { return "" }

// Kept tells whether it is loaded and switched off.
func (c *Contender) Kept() bool { return c.kept }

// Timed returns how many loads and single changes were.
func (c *Contender) Timed() (loads, changes int) { return len(c.loads), len(c.changes) }

// WithNames appends the names of contenders that are not among the names.
func WithNames(names []string, list []*Contender) []string {
	for _, c := range list {
		if !slices.Contains(names, c.Spec.Name) {
			names = append(names, c.Spec.Name)
		}
	}
	return names
}

// Caveat names the parts of the times to load and to change.
const Caveat = "loading in the lab begins with the text in memory, and reading it is part of it; " +
	"other tools are programs that are started for a load or a change " +
	"(some ms each), levee's library is called within this program"

// loadBudget is the usual budget.
const loadBudget = 10 * time.Second

// sane is the longest that putting rules or entries into force may take.
const sane = time.Minute

// Install puts the rules into force: loads them, times it, and makes one change; or switches on
// what is there.
func (c *Contender) Install(ctx context.Context, s contender.Site) error {
	for _, n := range c.Needs {
		if err := contender.Need(n[0], n[1]); err != nil {
			return err
		}
	}
	c.site = s
	put := c.load
	if c.kept {
		put = c.On
	}
	c.installed, c.kept, c.before = true, false, 0
	if err := put(ctx, s); err != nil {
		return err
	}
	n, err := c.Dropped(ctx)
	c.before = n
	return err
}

// load puts everything into force from nothing.
func (c *Contender) load(ctx context.Context, s contender.Site) error {
	if c.Prepare != nil {
		c.Prepare(s)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, sane)
	defer cancel()
	memory, err := bench.KernelMemory()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := c.Spec.Install(ctx, s); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("%w within %v", errNotLoaded, sane)
		}
		return err
	}
	c.loads = append(c.loads, float64(time.Since(start)))
	after, err := bench.KernelMemory()
	if err != nil {
		return err
	}
	c.memory = append(c.memory, after-memory)
	if err := c.alter(ctx, s); err != nil {
		return err
	}
	c.last = time.Since(begin)
	c.spent += c.last
	return nil
}

// alter times changes of what is loaded. One that takes too long is no reason to give up the rest.
func (c *Contender) alter(ctx context.Context, s contender.Site) error {
	if c.Rate != nil {
		r, err := c.Rate(ctx, s)
		if err != nil {
			return err
		}
		c.adds = append(c.adds, r)
	}
	if c.Change == nil {
		return nil
	}
	start := time.Now()
	err := c.Change(ctx, s)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.Change = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("making a single change: %w", err)
	}
	c.changes = append(c.changes, float64(time.Since(start)))
	return nil
}

// errNotLoaded is wrapped when loading takes too long.
var errNotLoaded = errors.New("not loaded")

func (c *Contender) Dropped(ctx context.Context) (uint64, error) {
	n, err := c.Spec.Dropped(ctx, c.site)
	return n - c.before, err
}

// Remove takes the rules out of force. What is costly to load stays loaded until the lab is gone.
func (c *Contender) Remove(ctx context.Context) error {
	if !c.installed {
		return nil
	}
	c.installed = false
	if c.Off != nil && c.last > 0 && c.spent+c.last > cmp.Or(c.Budget, loadBudget) {
		c.kept = true
		return c.Off(ctx, c.site)
	}
	return c.Spec.Remove(ctx, c.site)
}

// result joins what the lab measured with what Install did.
func (c *Contender) result(g *flood.Rung, f *flood.Figures) *Result {
	out := &Result{
		Name: g.Name, What: g.What, MedianPPS: f.MedianPPS, Interval: f.Interval,
		AtLeast:     f.AtLeast,
		NsPerPacket: f.NsPerPacket, NsInterval: f.NsInterval, Missing: g.Missing, Why: f.Why,
		Windows: g.Windows,
	}
	out.LoadNs, out.UpdateNs, out.AddsPerSec = bench.FigureOf(c.loads), bench.FigureOf(c.changes),
		bench.FigureOf(c.adds)
	out.Loads = len(c.loads)
	if n := len(c.memory); n > 0 {
		slices.Sort(c.memory)
		out.Bytes = c.memory[n/2]
	}
	return out
}

// Flood measures contenders against each other under one trace. group tells sets and rules apart by
// their parts: a contender that could not load one in time is not tried with more of the same. With
// an error there may still be results: what was measured before.
func (o *Options) Flood(ctx context.Context, group, what string, size int, list []*Contender,
	traffic string, frames [][]byte) ([]*Result, error) {
	var defences []contender.Defence
	var left []*Result
	var used []*Contender
	for _, c := range list {
		name, why := c.Spec.Name, ""
		if slow := o.slow[group+", "+name]; c.Most > 0 && size > c.Most {
			why = c.MostWhy
		} else if slow > 0 && size >= slow {
			why = fmt.Sprintf("%v within %v: %d of the same kind took longer", errNotLoaded, sane,
				slow)
		}
		switch {
		case !bench.Wanted(o.Only, name):
		case why != "":
			left = append(left, &Result{Name: name, What: c.What, Missing: why,
				Windows: []flood.Window{}})
		default:
			defences, used = append(defences, c), append(used, c)
		}
	}
	if len(used) == 0 {
		return left, nil
	}
	inLab := flood.Options{Options: o.Options, Attempts: o.Attempts, Wire: o.Wire}
	inLab.Progress = func(p bench.Progress) {
		share := 0.0
		if !o.SkipLookups {
			share = lookupShare
		}
		o.meter.Tell(what+", "+p.Doing, share+(1-share)*float64(p.Step-1)/float64(max(p.Steps, 1)))
	}
	m, err := flood.Measure(ctx, inLab, defences, traffic, fmt.Sprintf("%d packets", len(frames)),
		frames)
	if m == nil {
		return nil, err
	}
	for _, c := range m.Circumstances {
		if !slices.Contains(o.head.Caveats, c) {
			o.head.Caveats = append(o.head.Caveats, c)
		}
	}
	var out []*Result
	for i, c := range used {
		x := c.result(m.Rungs[i], m.Figures(m.Rungs[i], ""))
		if strings.HasPrefix(x.Missing, errNotLoaded.Error()) {
			o.slow[group+", "+c.Spec.Name] = size
		}
		if err != nil && x.MedianPPS == nil && x.Missing == "" {
			x.Why = append(x.Why, "the run ended before there were enough rounds")
		}
		out = append(out, x)
	}
	return append(out, left...), err
}
