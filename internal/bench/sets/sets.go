// Package sets measures sets as they grow, from ten entries to a million: look-ups inside the
// kernel (package lookup), and packets a second of levee, xdp-filter, nftables and ipset with the
// same entries (package load).
package sets

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/load"
	"levee/internal/bench/lookup"
	"levee/internal/bench/workload"
	"levee/internal/usage"
)

// Report is the document of `levee bench sets --json`; names of fields stay once shipped.
type Report struct {
	bench.Head
	Cases []*Case `json:"cases"`
	// Conditions of all readings, null where there were none.
	Conditions *bench.Conditions `json:"conditions"`
}

// Case is one set.
type Case struct {
	Family string `json:"family"` // "IPv4", "IPv6"
	// "prefixes" as in Internet routing, "hosts" (single addresses), or the name of a file
	Entries    string           `json:"entries"`
	Size       int              `json:"size"`
	Structures []*lookup.Result `json:"structures"` // asked inside the kernel
	// packets a second through the lab, all of them hits
	Lab []*load.Result `json:"lab"`
}

// Options of sets. The zero value measures everything at the default sizes, which takes hours.
type Options struct {
	load.Options
	Families []string       // "4", "6"; nil for both
	Entries  []string       // "prefixes", "hosts"; nil for both; not used with Data
	Data     []netip.Prefix // a table of one's own, of one family or both
	DataName string
}

// Run measures sets of all sizes. It needs root, and for the lab two cores. With data, sizes above
// that of the table are left out and the whole table is added. An interrupted measurement returns
// an error and what it has measured.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := errors.Join(o.Complete(workload.MaxPrefixes),
		usage.Known("structure or tool", o.Only, names())); err != nil {
		return nil, err
	}
	cases := o.cases()
	r := &Report{Head: o.Head(0, caveats...)}
	var err error
	r.Conditions, err = o.Each(ctx, "sets", &r.Head, o.estimates(cases), func(i int) error {
		s := cases[i]
		c := &Case{Family: s.Family(), Entries: s.Entries, Size: len(s.Prefixes),
			Structures: []*lookup.Result{}, Lab: []*load.Result{}}
		r.Cases = append(r.Cases, c)
		return o.measure(ctx, c, s)
	})
	if err != nil && r.Incomplete == "" {
		return nil, err
	}
	return r, err
}

// names returns all structures and tools that hold sets.
func names() []string {
	return load.WithNames(lookup.Names(lookup.Structures),
		contenders(&lookup.Set{Width: 32, Hosts: true}))
}

// measure fills one case.
func (o *Options) measure(ctx context.Context, c *Case, s *lookup.Set) (err error) {
	if !o.SkipLookups {
		l := lookup.Options{Rounds: o.Rounds, Seed: o.Seed, Only: o.Only, Tell: o.TellLookups,
			Machine: o.Machine}
		found, err := l.Compare(ctx, s, lookup.Structures)
		c.Structures = append(c.Structures, found...)
		if err != nil {
			return err
		}
	}
	if o.SkipLab {
		return nil
	}
	frames, err := hits(s, o.Seed)
	if err != nil {
		return err
	}
	c.Lab, err = o.Flood(ctx, s.Family()+" "+s.Entries, s.String(), len(s.Prefixes), contenders(s),
		"hits", frames)
	return err
}

// Rough times, for estimates: of building a structure for an entry, and of timing one for a round.
const (
	estimateBuild     = 2 * time.Microsecond
	estimateStructure = 400 * time.Millisecond
	mostContenders    = 8 // with single addresses
)

// estimates returns what each case may take.
func (o *Options) estimates(cases []*lookup.Set) []time.Duration {
	out := make([]time.Duration, len(cases))
	structures := len(lookup.Structures)
	for i, s := range cases {
		n := len(s.Prefixes)
		if !o.SkipLookups {
			out[i] = time.Duration(structures*n)*estimateBuild +
				time.Duration(structures*len(lookup.Traffics)*(o.Rounds+1))*estimateStructure
		}
		out[i] += o.Estimate(mostContenders, n)
	}
	return out
}

var caveats = []string{
	"look-ups: ns above the same loop without a look-up; stream: independent look-ups, which the " +
		"CPU overlaps; chain: each waits for the one before",
	"mix is half hits and half misses; half of the misses lie beside an entry; uniform and Zipf " +
		"(exponent 1.1) say how often entries come by",
	load.Caveat,
	"memory of maps is what the kernel charges, of the LPM trie its entries without forks and " +
		"the allocator's rounding; of tools in the lab the growth of the kernel's own memory " +
		"while loading, to some 100 KB",
}

func (o *Options) cases() (out []*lookup.Set) {
	for _, width := range []int{32, 128} {
		if !bench.Wanted(o.Families, map[int]string{32: "4", 128: "6"}[width]) {
			continue
		}
		if o.Data != nil {
			out = append(out, lookup.Samples(o.Data, o.DataName, width, o.Sizes, o.Seed)...)
			continue
		}
		for _, entries := range []string{"prefixes", "hosts"} {
			if !bench.Wanted(o.Entries, entries) {
				continue
			}
			for _, n := range o.Sizes {
				s := &lookup.Set{Width: width, Entries: entries, Hosts: entries == "hosts"}
				if s.Hosts {
					s.Prefixes = workload.Hosts(width, n, o.Seed)
				} else {
					s.Prefixes = workload.Internet(width, n, o.Seed)
				}
				out = append(out, s)
			}
		}
	}
	return out
}

// Raw returns what the report is as JSON by itself; the document goes beside it.
func (r *Report) Raw() any { return r }
