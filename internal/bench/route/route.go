// Package route compares the kernel's routing table and LPM trie with levee's structures, by
// look-ups inside the kernel (package lookup): hits, misses and a mix, depth, time to insert and
// memory.
//
// In go sizes and kinds of tables, or a table of one's own; out comes a Report. Routes go into a
// network namespace that is made for it and removed.
package route

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"levee/internal/bench"
	"levee/internal/bench/lookup"
	"levee/internal/bench/workload"
	"levee/internal/usage"
)

// Report is the outcome of a comparison of routing tables.
type Report struct {
	bench.Head
	Cases      []*Case
	Conditions *bench.Conditions // of all readings
}

// Case is one table.
type Case struct {
	*lookup.Set
	Structures []*lookup.Result
}

// Options of routing tables.
type Options struct {
	bench.Options
	Sizes    []int          // nil for 1,000, 100,000 and a full view
	Only     []string       // structures by name, nil for all
	Families []string       // "4", "6"; nil for both
	Tables   []string       // of Tables, nil for all; not used with Data
	Data     []netip.Prefix // a table of one's own, of one family or both
	DataName string

	full bool // sizes were not chosen: a full view as well
}

// Tables are the kinds of table.
var Tables = []string{"internet", "48s", "128s"}

// fullView is the number of routes that an Internet full view has, as of the distributions of
// package workload.
var fullView = map[int]int{32: 901_899, 128: 160_147}

// densities are the numbers of /48s for each one that is routed.
var densities = []uint64{1, 16, 4096}

// hostsBlock is a /108: as many addresses as may be drawn.
const hostsBlock = 1 << 20

var caveats = []string{
	"ns above the same loop without a look-up; stream: independent look-ups, which the CPU " +
		"overlaps; chain: each waits for the one before",
	"mix is half hits and half misses; half of the misses lie beside a route; uniform and Zipf " +
		"(exponent 1.1) say how often routes come by",
	"kernel FIB: bpf_fib_lookup from a program of traffic control in a namespace of its own, all " +
		"routes by one gateway; it finds a next hop and checks the MTU, the others say whether " +
		"there is a route",
	"insertion: FIB by rtnetlink, 1,000 routes a system call; LPM trie by batches of 4,096; " +
		"levee static is built aside and loaded whole",
	"memory of maps is what the kernel charges, of the LPM trie its entries without forks and " +
		"the allocator's rounding; of the FIB the growth of the kernel's own memory while routes " +
		"are installed: none below 1 MB, and to some MB on a busy machine",
	"depth is of the hits; of the LPM trie and the IPv6 FIB it is counted in a copy of their " +
		"shape, since the kernel does not tell; of the IPv4 FIB it is the kernel's own, over " +
		"its leaves",
}

func (o *Options) complete() error {
	if o.Sizes == nil {
		o.Sizes = []int{1000, 100_000}
		if o.Quick {
			o.Sizes = []int{1000, 10_000}
		}
		o.full = !o.Quick
	}
	err := o.Options.Complete(bench.Usual{Rounds: bench.MinRounds + 1,
		QuickRounds: bench.MinRounds})
	return errors.Join(err, bench.CheckSizes(o.Sizes, workload.MaxPrefixes),
		usage.Known("kind of table", o.Tables, Tables))
}

// Run compares routing tables. It needs root. When ctx ends early the report has the cases and
// traffics that were complete, says that it is incomplete, and comes with the error.
func Run(ctx context.Context, o Options) (r *Report, failed error) {
	from := slices.DeleteFunc(slices.Clone(lookup.Structures),
		func(s lookup.Structure) bool { return s.HostsOnly })
	from = append(from, fib(ctx))
	used, wrong := bench.Choose("structure", o.Only, from,
		func(s lookup.Structure) string { return s.Name })
	if err := bench.Ready("route", o.complete(), wrong); err != nil {
		return nil, err
	}
	machine, end, err := bench.Observe()
	if err != nil {
		return nil, err
	}
	report := &Report{Head: o.Head(0, caveats...)}
	defer func() { report.Conditions, failed = machine.Conditions(), errors.Join(failed, end()) }()
	plans := o.plans()
	done, total := 0, len(plans)*(len(used)+len(lookup.Traffics))
	tell := func(doing string, _ float64) {
		o.Tell(doing, done, total)
		done++
	}
	for _, draw := range plans {
		set, err := draw()
		if err != nil {
			return nil, err
		}
		c := &Case{Set: set}
		report.Cases = append(report.Cases, c)
		l := lookup.Options{Rounds: o.Rounds, Seed: o.Seed, Depths: true, Tell: tell,
			Machine: machine}
		if c.Structures, err = l.Compare(ctx, set, used); err != nil {
			return bench.Ended(ctx, report, &report.Head, err)
		}
	}
	return report, nil
}

// plan draws a table when its turn comes: all of them at once would be hundreds of MB.
type plan func() (*lookup.Set, error)

func (o *Options) plans() []plan {
	var out []plan
	for _, width := range []int{32, 128} {
		if !bench.Wanted(o.Families, map[int]string{32: "4", 128: "6"}[width]) {
			continue
		}
		if o.Data != nil {
			for _, s := range lookup.Samples(o.Data, o.DataName, width, o.Sizes, o.Seed) {
				out = append(out, func() (*lookup.Set, error) { return s, nil })
			}
			continue
		}
		if bench.Wanted(o.Tables, "internet") {
			out = append(out, o.internet(width)...)
		}
		if width == 128 {
			out = append(out, o.blocks()...)
		}
	}
	return out
}

func (o *Options) internet(width int) []plan {
	sizes := slices.Clone(o.Sizes)
	if o.full {
		sizes = append(sizes, fullView[width])
	}
	var out []plan
	for _, n := range sizes {
		out = append(out, func() (*lookup.Set, error) {
			return &lookup.Set{Width: width, Entries: "Internet-like",
				Prefixes: workload.Internet(width, n, o.Seed)}, nil
		})
	}
	return out
}

// blocks are /48s of several densities and addresses of a /108.
func (o *Options) blocks() []plan {
	var out []plan
	block := func(entries, base string, length, n int, span uint64) {
		out = append(out, func() (*lookup.Set, error) {
			p, err := workload.Block(netip.MustParseAddr(base), length, n, span, o.Seed)
			return &lookup.Set{Width: 128, Entries: entries, Prefixes: p}, err
		})
	}
	if bench.Wanted(o.Tables, "48s") {
		for _, every := range densities {
			entries := "/48s, all"
			if every > 1 {
				entries = fmt.Sprintf("/48s, one in %d", every)
			}
			for _, n := range o.Sizes {
				block(entries, "2a00::", 48, n, uint64(n)*every)
			}
		}
	}
	if bench.Wanted(o.Tables, "128s") {
		for _, n := range o.Sizes {
			block("/128s in a /108", "2a00:0:0:1::", 128, n, hostsBlock)
		}
	}
	return out
}

// insertion returns the time from a list of routes in memory to all of them in force, for each
// route, in ns.
func insertion(s *lookup.Result, size int) float64 {
	return (s.BuildNs + s.LoadNs) / math.Max(float64(size), 1)
}
