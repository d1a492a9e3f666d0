package profile

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/bench/ladder"
	"levee/internal/usage"
)

// Options of a profile. The zero value, with a rung, takes about half a minute.
type Options struct {
	bench.Options
	Rung       string // a name of ladder.RungNames, or the beginning of one
	Policy     []byte // of levee's own rung; nil for the demo policy
	PolicyName string
	// Rates of the flood, IPv4 then, in packets a second; empty for one as fast as it goes, of both
	// families.
	Rates     []float64
	Frequency int // samples a second, 0 for 997: no multiple of the kernel's own ticks
}

const (
	maxFrequency = 4000
	maxRates     = 20
	labDriver    = "veth" // of the lab's devices
	traffic      = "udp"  // of which every rung drops what is offered
)

var usual = bench.Usual{
	Rounds: 6, FewestRounds: bench.MinRounds, MostRounds: 50,
	Window: time.Second, QuickWindow: 250 * time.Millisecond, Shortest: 100 * time.Millisecond,
	Longest: 2 * time.Second,
}

func (o *Options) complete() error {
	if err := o.Options.Complete(usual); err != nil {
		return err
	}
	if err := completeFrequency(&o.Frequency); err != nil {
		return err
	}
	slices.Sort(o.Rates)
	o.Rates = slices.Compact(o.Rates)
	if len(o.Rates) > maxRates {
		return usage.Wrongf("%d rates: %d are enough", len(o.Rates), maxRates)
	}
	for _, rate := range o.Rates {
		if !flood.SaneRate(rate) {
			return usage.Wrongf("a rate of %.0f packets a second: %d to %d million", rate,
				flood.MinRate, flood.MaxRate/1_000_000)
		}
	}
	name, err := rung(o.Rung, ladder.RungNames())
	o.Rung = name
	return err
}

func completeFrequency(f *int) error {
	if *f == 0 {
		*f = 997
	}
	if *f < 50 || *f > maxFrequency {
		return usage.Wrongf("%d/s: samples a second must be 50 to %d", *f, maxFrequency)
	}
	return nil
}

// rung finds the only name that is or begins with the given text; of several, the only one without
// a remark in parentheses: "nft" is the one with all rules, not the one with one rule.
func rung(asked string, names []string) (string, error) {
	var found, plain []string
	for _, n := range names {
		if n == asked {
			return n, nil
		}
		if strings.HasPrefix(n, asked) {
			found = append(found, n)
			if !strings.HasSuffix(n, ")") {
				plain = append(plain, n)
			}
		}
	}
	switch {
	case asked == "":
		return "", usage.Wrongf("which rung? There are %s", usage.Words(names))
	case len(found) == 1:
		return found[0], nil
	case len(plain) == 1:
		return plain[0], nil
	case len(found) > 1:
		return "", usage.Wrongf("rung %q may be any of %s", asked, usage.Words(found))
	}
	return "", usage.Known("rung", []string{asked}, names)
}

// window holds the samples of one window.
type window struct {
	samples int     // of cores that were not idle
	idle    float64 // share of the time, by /proc/stat: samples do not tell it (decision 0021)
	stacks  map[string]*stack
	// samples by the program that took the time, itself or by what it called
	programs map[ebpf.ProgramID]float64
}

func newWindow(idle float64) *window {
	return &window{idle: idle, stacks: map[string]*stack{},
		programs: map[ebpf.ProgramID]float64{}}
}

// together makes one window of those of several cores. Where cycles are counted, the kernel asks a
// core that sleeps for as many samples as one that does not: so a core's samples are weighed by
// its own time, and are as many together as were taken.
func together(cores []*window) *window {
	sum, busy := newWindow(0), 0.0
	for _, x := range cores {
		sum.samples += x.samples
		sum.idle += x.idle / float64(len(cores))
		if x.samples > 0 {
			busy += 1 - x.idle
		}
	}
	for _, x := range cores {
		weight := 1.0
		if busy > 0 && x.samples > 0 {
			weight = (1 - x.idle) / float64(x.samples) / busy * float64(sum.samples)
		}
		for id, n := range x.programs {
			sum.programs[id] += weight * n
		}
		addStacks(sum.stacks, x.stacks, weight)
	}
	return sum
}

func addStacks(to, from map[string]*stack, weight float64) {
	for key, s := range from {
		if to[key] == nil {
			to[key] = &stack{functions: s.functions, class: s.class}
		}
		to[key].count += weight * s.count
	}
}

// stack is one list of functions, outermost first.
type stack struct {
	functions []string
	class     Class
	count     float64
}

// observer watches windows.
type observer struct {
	*Options
	classifier classifier
	sampler    *sampler
	windows    []*window
}

// Run profiles a rung. It needs root and two cores. When ctx ends early the report has what was
// seen until then, says that it is incomplete, and comes with the error.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := bench.Ready("profile", o.complete()); err != nil {
		return nil, err
	}
	names, err := readKernel()
	if err != nil {
		return nil, err
	}
	// A machine that takes no samples says so before a lab is made.
	probe, err := newSampler(0, o.Frequency, usual.Longest)
	if err != nil {
		return nil, err
	}
	probe.close()
	w := &observer{Options: &o, classifier: classifier{symbols: names,
		drivers: []string{labDriver}}}
	defer w.close()
	r := &Report{Head: o.Head(0), Rung: o.Rung, Event: probe.event, Frequency: o.Frequency,
		WindowMS: o.Window.Milliseconds()}
	asked := ladder.Options{
		Options: flood.Options{Options: o.Options, Watch: w.watch},
		Policy:  o.Policy, PolicyName: o.PolicyName, Rungs: []string{o.Rung}, Rates: o.Rates,
	}
	if len(o.Rates) > 0 {
		asked.Families, asked.Traffic = []string{flood.IPv4}, []string{traffic}
	}
	for _, rate := range o.Rates {
		r.Rates = append(r.Rates, &Rate{Rate: rate})
	}
	l, err := ladder.Run(ctx, asked)
	if l == nil {
		return nil, err
	}
	r.judge(w, l.Rungs[0].Rung)
	if err != nil {
		r.Incomplete = "interrupted; these are the windows until then"
	}
	return r, err
}

func (w *observer) close() {
	if w.sampler != nil {
		w.sampler.close()
	}
}

// watch takes the samples of one window.
func (w *observer) watch(r flood.Receiver, wait func() error) error {
	w.classifier.own = []uint32{uint32(r.Thread), uint32(os.Getpid())}
	if w.sampler == nil {
		var err error
		if w.sampler, err = newSampler(r.CPU, w.Frequency, usual.Longest); err != nil {
			return err
		}
	}
	// Each round loads its programs anew.
	if err := w.classifier.readPrograms(); err != nil {
		return err
	}
	before, err := readTimes(r.CPU)
	if err != nil {
		return err
	}
	if err := w.sampler.on(); err != nil {
		return err
	}
	waited := wait()
	if err := errors.Join(waited, w.sampler.off()); err != nil {
		return err
	}
	after, err := readTimes(r.CPU)
	if err != nil {
		return err
	}
	samples, err := w.sampler.take()
	if err != nil {
		return err
	}
	seen := newWindow(after.idleSince(before))
	for i := range samples {
		w.classifier.count(&samples[i], seen)
	}
	w.windows = append(w.windows, seen)
	return nil
}

// count adds a sample to its window, unless the core was idle.
func (c *classifier) count(s *sample, to *window) {
	symbols := c.resolve(s)
	class, program := c.class(s, symbols)
	if class == Idle {
		return
	}
	to.samples++
	if program != 0 {
		to.programs[program]++
	}
	functions := make([]string, 0, len(symbols)+1)
	switch class {
	case User:
		functions = append(functions, "[user space]")
	case Others: // nobody's business here
		functions = append(functions, "[other tasks]")
	default:
		for i := len(symbols) - 1; i >= 0; i-- {
			functions = append(functions, symbols[i].name)
		}
		if len(functions) == 0 {
			functions = append(functions, "[unknown]")
		}
	}
	key := strings.Join(functions, ";")
	if to.stacks[key] == nil {
		to.stacks[key] = &stack{functions: functions, class: class}
	}
	to.stacks[key].count++
}
