// Package lookup times look-ups inside the kernel: an eBPF program asks a structure for addresses
// that lie in a map, and the same loop without the question is measured in turns with it and
// subtracted.
//
// In go a set of prefixes and structures, out come for each the time of a look-up, to build, load
// and change it, and its memory. A structure that answers wrongly, or that the kernel refuses, has
// no figure but a reason. The package leaves nothing behind in the kernel.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"levee/internal/bench"
	"levee/internal/bench/workload"
)

// Result is a structure that was filled and asked; names of JSON fields stay once shipped.
type Result struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	Missing string `json:"missing,omitempty"` // why there is no figure
	// Times in ns: work in user space, putting it into the kernel, one single change.
	BuildNs  float64   `json:"build_ns"`
	LoadNs   float64   `json:"load_ns"`
	UpdateNs float64   `json:"update_ns"`
	Bytes    uint64    `json:"bytes"` // that the kernel charges for it
	PerEntry float64   `json:"bytes_per_entry"`
	Lookups  []*Timing `json:"lookups"`
	// Depth is of hits; where it is asked for. DepthUnknown says why there is none.
	Depth        *Depth `json:"depth,omitempty"`
	DepthUnknown string `json:"depth_unknown,omitempty"`
}

// Timing is ns a look-up above the empty loop.
type Timing struct {
	Kind workload.Kind `json:"kind"` // hit, miss, mix (half of each)
	Skew workload.Skew `json:"skew"` // how look-ups are spread over entries
	// Stream is of look-ups that the CPU may overlap, Chain of such that each wait for the one
	// before.
	Stream *bench.Figure `json:"stream_ns"`
	Chain  *bench.Figure `json:"chain_ns"`
	// TimesLevee is the stream's ns over that of levee static, with what both intervals allow; it
	// is absent if levee's interval reaches down to the loop itself, since nothing is a multiple of
	// zero.
	TimesLevee         float64     `json:"times_levee_static,omitempty"`
	TimesLeveeInterval *[2]float64 `json:"times_levee_static_interval,omitempty"`
	// Raw values of the rounds.
	StreamRounds []float64 `json:"stream_rounds"`
	ChainRounds  []float64 `json:"chain_rounds"`
}

// Lookup finds a figure by its traffic, nil if there is none.
func (r *Result) Lookup(k workload.Kind, skew workload.Skew) *Timing {
	for _, l := range r.Lookups {
		if l.Kind == k && l.Skew == skew {
			return l
		}
	}
	return nil
}

// Set is the entries of structures.
type Set struct {
	Width    int // bits of an address
	Entries  string
	Prefixes []netip.Prefix
	Hosts    bool // single addresses only
}

// Family is IPv4 or IPv6.
func (s *Set) Family() string {
	if s.Width == 32 {
		return "IPv4"
	}
	return "IPv6"
}

func (s *Set) String() string {
	return fmt.Sprintf("%d %s %s", len(s.Prefixes), s.Family(), s.Entries)
}

// Samples are sets of the sizes that are smaller than a table, drawn from its prefixes of one
// family, and all of these.
func Samples(table []netip.Prefix, name string, width int, sizes []int, seed uint64) (out []*Set) {
	of := workload.Family(table, width)
	for _, n := range append(slices.DeleteFunc(slices.Clone(sizes),
		func(n int) bool { return n >= len(of) }), len(of)) {
		if n > 0 {
			out = append(out, &Set{Width: width, Entries: name,
				Prefixes: workload.Sample(of, n, seed)})
		}
	}
	return out
}

// Traffics are the kinds of addresses of look-ups.
var Traffics = []struct {
	Kind workload.Kind
	Skew workload.Skew
}{
	{workload.Hits, workload.Uniform}, {workload.Misses, workload.Uniform},
	{workload.Mix, workload.Uniform}, {workload.Mix, workload.Zipf},
}

// candidate is a structure under measurement.
type candidate struct {
	*Result
	built *Built
	pair  pair
}

// Options of a comparison.
type Options struct {
	Rounds int
	Seed   uint64                            // of the addresses
	Only   []string                          // structures by name, nil for all
	Depths bool                              // measure depths as well
	Tell   func(doing string, share float64) // what is done now, and how much of all
	// Machine reads how fast it is between rounds.
	Machine *bench.Observer
}

// Names returns the names of structures.
func Names(from []Structure) []string {
	return bench.Names(from, func(s Structure) string { return s.Name })
}

// Compare fills all structures and times look-ups in turns. If ctx ends early there is what is
// complete.
func (o *Options) Compare(ctx context.Context, set *Set, from []Structure) (results []*Result,
	err error) {
	addrs, err := newAddresses()
	if err != nil {
		return nil, err
	}
	defer addrs.Close()
	base, err := newPair(nil, addrs)
	if err != nil {
		return nil, err
	}
	defer base.close()
	var cands []*candidate
	defer func() {
		for _, x := range cands {
			results, err = append(results, x.Result), errors.Join(err, x.close())
		}
		compareToLevee(results)
	}()
	for _, s := range from {
		if err := bench.Interrupted(ctx); err != nil {
			return nil, err
		}
		if !bench.Wanted(o.Only, s.Name) || s.HostsOnly && !set.Hosts {
			continue
		}
		o.Tell(fmt.Sprintf("%s: building %s", set, s.Name), 0)
		cands = append(cands, newCandidate(s, set, addrs))
	}
	for i, t := range Traffics {
		trace, err := workload.Addresses(set.Prefixes, traceLength, t.Kind, t.Skew, o.Seed)
		if err != nil {
			return nil, err
		}
		if err := fill(addrs, trace); err != nil {
			return nil, err
		}
		if o.Depths && t.Kind == workload.Hits {
			measureDepths(cands, trace)
		}
		o.Tell(fmt.Sprintf("%s: %s, %s", set, t.Kind, t.Skew), float64(i)/float64(len(Traffics)))
		if err := o.timeAll(ctx, cands, base, t.Kind, t.Skew); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func newCandidate(s Structure, w *Set, addrs *ebpf.Map) *candidate {
	x := &candidate{Result: &Result{Name: s.Name, What: s.What, Lookups: []*Timing{}}}
	var err error
	if x.built, err = s.Build(w.Prefixes, w.Width); err == nil {
		b := x.built
		x.BuildNs, x.LoadNs, x.Bytes = float64(b.buildTime), float64(b.LoadTime), b.Memory
		x.PerEntry = float64(b.Memory) / float64(len(w.Prefixes))
		if x.UpdateNs, err = b.timeUpdate(w.Prefixes); err == nil {
			x.pair, err = newPair(b, addrs)
		}
	}
	if err != nil {
		x.Missing = err.Error()
	}
	return x
}

func (x *candidate) close() error {
	x.pair.close()
	if x.built == nil {
		return nil
	}
	return x.built.Close()
}

// measureDepths finds out how deep the hits go.
func measureDepths(cands []*candidate, trace []netip.Addr) {
	for _, x := range cands {
		switch {
		case x.Missing != "":
		case x.built.Depth == nil:
			x.DepthUnknown = "not known"
		default:
			x.Depth, x.DepthUnknown = x.built.Depth(trace)
		}
	}
}

// timeAll measures one kind of traffic. A structure that answers wrongly has no figure.
func (o *Options) timeAll(ctx context.Context, cands []*candidate, base pair, kind workload.Kind,
	skew workload.Skew) error {
	results := make([]*Timing, len(cands))
	for i := range results {
		results[i] = &Timing{Kind: kind, Skew: skew}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for round := range o.Rounds + 1 { // the first warms up
		o.Machine.Read()
		for _, i := range bench.InTurn(round, len(cands)) {
			x := cands[i]
			if x.Missing != "" {
				continue
			}
			if err := bench.Interrupted(ctx); err != nil {
				return err
			}
			ns, hits, same, err := x.pair.round(base)
			if err != nil {
				return err
			}
			if !same {
				x.Missing = "wrong answers: the same addresses are not always found, or not " +
					"always missed"
				continue
			}
			if kind == workload.Hits && hits != traceLength || kind == workload.Misses &&
				hits != 0 {
				x.Missing = fmt.Sprintf(
					"wrong answers: %d of %d addresses found that are each a %s", hits, traceLength,
					kind)
				continue
			}
			if round > 0 {
				results[i].StreamRounds = append(results[i].StreamRounds, ns[0])
				results[i].ChainRounds = append(results[i].ChainRounds, ns[1])
			}
		}
	}
	for i, x := range cands {
		if l := results[i]; x.Missing == "" {
			l.Stream, l.Chain = bench.FigureOf(l.StreamRounds), bench.FigureOf(l.ChainRounds)
			x.Lookups = append(x.Lookups, l)
		} else {
			x.Lookups = []*Timing{}
		}
	}
	return nil
}

// compareToLevee fills TimesLevee.
func compareToLevee(all []*Result) {
	for _, base := range all {
		if base.Name != Structures[0].Name {
			continue
		}
		for _, s := range all {
			for _, l := range s.Lookups {
				if b := base.Lookup(l.Kind, l.Skew); b != nil && b.Stream.Interval[0] > 0 {
					l.TimesLevee = l.Stream.Median / b.Stream.Median
					l.TimesLeveeInterval = &[2]float64{l.Stream.Interval[0] / b.Stream.Interval[1],
						l.Stream.Interval[1] / b.Stream.Interval[0]}
				}
			}
		}
	}
}

// Cells returns the times of all traffics, each behind a tab.
func (r *Result) Cells() string {
	var b strings.Builder
	for _, t := range Traffics {
		b.WriteString("\t" + r.Lookup(t.Kind, t.Skew).cell())
	}
	return b.String()
}

func (l *Timing) cell() string {
	if l == nil || l.Stream == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f (%.1f-%.1f)/%.1f", l.Stream.Median, l.Stream.Interval[0],
		l.Stream.Interval[1], l.Chain.Median)
}
