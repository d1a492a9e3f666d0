package scale

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"levee/internal/bench/option"
	"levee/internal/bench/workload"
	"levee/internal/host"
	"levee/internal/kernel"
)

// SetsReport is what `levee bench sets --json` prints; names of fields stay once shipped.
type SetsReport struct {
	Started time.Time  `json:"started"`
	Command string     `json:"command"` // to repeat it
	Quick   bool       `json:"quick"`
	Rounds  int        `json:"rounds"`
	Seed    uint64     `json:"seed"`
	Machine host.Info  `json:"machine"`
	Cases   []*SetCase `json:"cases"`
	Caveats []string   `json:"caveats"`
	// Conditions of all readings, null where there were none.
	Conditions *Conditions `json:"conditions"`
	// Incomplete is why the measurement ended early, empty if it did not. The last case then lacks figures.
	Incomplete string `json:"incomplete,omitempty"`
}

// SetCase is one set.
type SetCase struct {
	Family     string       `json:"family"`  // "IPv4", "IPv6"
	Entries    string       `json:"entries"` // "prefixes" as in Internet routing, "hosts" (single addresses), or the name of a file
	Size       int          `json:"size"`
	Structures []*Structure `json:"structures"` // asked inside the kernel
	Lab        []*Tool      `json:"lab"`        // packets a second through the lab, all of them hits
}

// Structure is one structure filled with the set.
type Structure struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	Missing string `json:"missing,omitempty"` // why there is no figure
	// Times in ns: work in user space, putting it into the kernel, one single change.
	BuildNs  float64   `json:"build_ns"`
	LoadNs   float64   `json:"load_ns"`
	UpdateNs float64   `json:"update_ns"`
	Bytes    uint64    `json:"bytes"` // that the kernel charges for it
	PerEntry float64   `json:"bytes_per_entry"`
	Lookups  []*Lookup `json:"lookups"`
	// Depth is of hits; measured by `bench route` only. DepthUnknown says why there is none.
	Depth        *Depth `json:"depth,omitempty"`
	DepthUnknown string `json:"depth_unknown,omitempty"`
}

// Lookup is ns a look-up above the empty loop.
type Lookup struct {
	Kind workload.Kind `json:"kind"` // hit, miss, mix (half of each)
	Skew workload.Skew `json:"skew"` // of which entries are asked for
	// Stream is of look-ups that the CPU may overlap, Chain of such that each wait for the one before.
	Stream *Figure `json:"stream_ns"`
	Chain  *Figure `json:"chain_ns"`
	// TimesLevee is the stream's ns over that of levee static, with what both intervals allow; there is none where levee's
	// interval reaches down to the loop itself, of which nothing is a multiple.
	TimesLevee         float64     `json:"times_levee_static,omitempty"`
	TimesLeveeInterval *[2]float64 `json:"times_levee_static_interval,omitempty"`
	// Raw values of the rounds.
	StreamRounds []float64 `json:"stream_rounds"`
	ChainRounds  []float64 `json:"chain_rounds"`
}

// Lookup finds a figure by its traffic, nil if there is none.
func (s *Structure) Lookup(k workload.Kind, skew workload.Skew) *Lookup {
	for _, l := range s.Lookups {
		if l.Kind == k && l.Skew == skew {
			return l
		}
	}
	return nil
}

// SetOptions are Options of sets.
type SetOptions struct {
	Options
	Families []string       // "4", "6"; nil for both
	Entries  []string       // "prefixes", "hosts"; nil for both; not used with Data
	Data     []netip.Prefix // a table of one's own, of one family or both
	DataName string
}

// Sets measures sets of all sizes. It needs root, and for the lab two cores. With data, sizes above that of
// the table are left out and the whole table is added. An interrupted measurement returns an error and what it
// has measured.
func Sets(ctx context.Context, o SetOptions) (r *SetsReport, failed error) {
	if err := errors.Join(o.complete(workload.MaxPrefixes), option.Known("structure or tool", o.Only, setNames())); err != nil {
		return nil, fmt.Errorf("bench sets: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root: sudo levee bench sets")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, kernel.LoadError("raise the limit of locked memory", err)
	}
	r = &SetsReport{
		Started: time.Now().UTC().Truncate(time.Second), Command: o.Command, Quick: o.Quick, Rounds: o.Rounds, Seed: o.Seed,
		Machine: host.Fingerprint(0), Caveats: setCaveats,
	}
	cases := o.cases()
	end, err := o.observe()
	if err != nil {
		return nil, fmt.Errorf("bench sets: %w", err)
	}
	defer func() {
		if r != nil {
			r.Conditions = conditionsOf(o.machine.all)
		}
		failed = errors.Join(failed, end())
	}()
	meter := o.begin(o.estimates(cases))
	for i := range cases {
		w := &cases[i]
		meter.next(i)
		c := &SetCase{Family: w.family(), Entries: w.entries, Size: len(w.prefixes), Structures: []*Structure{}, Lab: []*Tool{}}
		r.Cases = append(r.Cases, c)
		if err := o.measure(ctx, c, w); err != nil {
			if i == 0 && ctx.Err() == nil {
				return nil, err // it cannot be measured here
			}
			r.Incomplete, err = incomplete(ctx, "bench sets", i, len(cases), err)
			return r, err
		}
	}
	return r, nil
}

// setNames are all structures and tools that hold sets.
func setNames() (names []string) {
	for _, s := range structures {
		names = append(names, s.name)
	}
	return withTools(names, setTools(&work{width: 32, hosts: true}))
}

// measure fills one case.
func (o *SetOptions) measure(ctx context.Context, c *SetCase, w *work) error {
	if !o.SkipLookups {
		if err := o.lookups(ctx, c, w, structures); err != nil {
			return err
		}
	}
	if o.SkipLab {
		return nil
	}
	return o.floodSets(ctx, c, w)
}

// estimates are what each case may take.
func (o *SetOptions) estimates(cases []work) []time.Duration {
	out := make([]time.Duration, len(cases))
	for i := range cases {
		n := len(cases[i].prefixes)
		if !o.SkipLookups {
			out[i] = time.Duration(len(structures)*n)*estimateBuild + time.Duration(len(structures)*len(traffics)*(o.Rounds+1))*estimateStructure
		}
		out[i] += o.estimateLab(mostSetTools, n)
	}
	return out
}

var setCaveats = []string{
	"look-ups: ns above the same loop without a look-up; stream: independent look-ups, which the CPU overlaps; chain: each waits for the one before",
	"mix is half hits and half misses; half of the misses lie beside an entry; uniform and Zipf (exponent 1.1) say how often entries come by",
	loadCaveat,
	"memory of maps is what the kernel charges, of the LPM trie its entries without forks and the allocator's rounding; of tools in the lab the growth of the kernel's own memory while loading, to some 100 KB",
	"veth has no DMA and no descriptors: ratios carry over to other machines, absolute packets a second do not",
}

// work is one set to be measured.
type work struct {
	width    int
	entries  string
	prefixes []netip.Prefix
	hosts    bool // single addresses only
}

func (w *work) family() string {
	if w.width == 32 {
		return "IPv4"
	}
	return "IPv6"
}

func (w *work) String() string {
	return fmt.Sprintf("%d %s %s", len(w.prefixes), w.family(), w.entries)
}

func (o *SetOptions) cases() []work {
	var out []work
	for _, width := range []int{32, 128} {
		if len(o.Families) > 0 && !contains(o.Families, map[int]string{32: "4", 128: "6"}[width]) {
			continue
		}
		if o.Data != nil {
			out = append(out, o.dataCases(workload.Family(o.Data, width), width)...)
			continue
		}
		for _, entries := range []string{"prefixes", "hosts"} {
			if len(o.Entries) > 0 && !contains(o.Entries, entries) {
				continue
			}
			for _, n := range o.Sizes {
				w := work{width: width, entries: entries, hosts: entries == "hosts"}
				switch {
				case w.hosts:
					w.prefixes = workload.Hosts(width, n, o.Seed)
				case width == 32:
					w.prefixes = workload.Internet4(n, o.Seed)
				default:
					w.prefixes = workload.Internet6(n, o.Seed)
				}
				out = append(out, w)
			}
		}
	}
	return out
}

func (o *SetOptions) dataCases(table []netip.Prefix, width int) []work {
	var out []work
	for _, n := range o.Sizes {
		if n < len(table) {
			out = append(out, work{width: width, entries: o.DataName, prefixes: workload.Sample(table, n, o.Seed)})
		}
	}
	if len(table) > 0 {
		out = append(out, work{width: width, entries: o.DataName, prefixes: workload.Sample(table, len(table), o.Seed)})
	}
	return out
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// traffics are the addresses that are looked up.
var traffics = []struct {
	kind workload.Kind
	skew workload.Skew
}{
	{workload.Hits, workload.Uniform}, {workload.Misses, workload.Uniform}, {workload.Mix, workload.Uniform}, {workload.Mix, workload.Zipf},
}

// candidate is a structure under measurement.
type candidate struct {
	*Structure
	built *built
	pair  pair
}

// lookups builds all structures and times them in turns. If ctx ends early, c keeps what is complete.
func (o *Options) lookups(ctx context.Context, c *SetCase, w *work, from []structure) error {
	err := o.lookupsOf(ctx, c, w, from)
	compareToLevee(c.Structures)
	return err
}

func (o *Options) lookupsOf(ctx context.Context, c *SetCase, w *work, from []structure) (err error) {
	addrs, err := newAddresses()
	if err != nil {
		return err
	}
	defer addrs.Close()
	base, err := newPair(nil, addrs)
	if err != nil {
		return err
	}
	defer base.close()
	var cands []*candidate
	defer func() {
		for _, s := range cands {
			err = errors.Join(err, s.close())
		}
	}()
	for _, s := range from {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %w", ctx.Err())
		}
		if !o.wants(s.name) || s.hostsOnly && !w.hosts {
			continue
		}
		o.tell(fmt.Sprintf("%s: building %s", w, s.name), 0)
		x := newCandidate(s, w, addrs)
		c.Structures = append(c.Structures, x.Structure)
		cands = append(cands, x)
	}
	for i, t := range traffics {
		trace, err := workload.Addresses(w.prefixes, traceLength, t.kind, t.skew, o.Seed)
		if err != nil {
			return err
		}
		if err := fill(addrs, trace); err != nil {
			return err
		}
		if o.depths && t.kind == workload.Hits {
			measureDepths(cands, trace)
		}
		o.tell(fmt.Sprintf("%s: %s, %s", w, t.kind, t.skew), lookupShare*float64(i)/float64(len(traffics)))
		if err := o.timeAll(ctx, cands, base, t.kind, t.skew); err != nil {
			return err
		}
	}
	return nil
}

func newCandidate(s structure, w *work, addrs *ebpf.Map) *candidate {
	x := &candidate{Structure: &Structure{Name: s.name, What: s.what, Lookups: []*Lookup{}}}
	var err error
	if x.built, err = s.build(w.prefixes, w.width); err == nil {
		b := x.built
		x.BuildNs, x.LoadNs, x.Bytes = float64(b.buildTime), float64(b.loadTime), b.memory
		x.PerEntry = float64(b.memory) / float64(len(w.prefixes))
		if x.UpdateNs, err = b.timeUpdate(w.prefixes); err == nil {
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
	return x.built.close()
}

// measureDepths finds out how deep the hits go.
func measureDepths(cands []*candidate, trace []netip.Addr) {
	for _, x := range cands {
		switch {
		case x.Missing != "":
		case x.built.depth == nil:
			x.DepthUnknown = "not known"
		default:
			x.Depth, x.DepthUnknown = x.built.depth(trace)
		}
	}
}

// timeAll measures one kind of traffic. A structure that answers wrongly has no figure.
func (o *Options) timeAll(ctx context.Context, cands []*candidate, base pair, kind workload.Kind, skew workload.Skew) error {
	results := make([]*Lookup, len(cands))
	for i := range results {
		results[i] = &Lookup{Kind: kind, Skew: skew}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for round := range o.Rounds + 1 { // the first warms up
		if o.machine != nil {
			o.machine.read()
		}
		for _, i := range inTurn(round, len(cands)) {
			x := cands[i]
			if x.Missing != "" {
				continue
			}
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted: %w", ctx.Err())
			}
			ns, hits, same, err := x.pair.round(base)
			if err != nil {
				return err
			}
			if !same {
				x.Missing = "wrong answers: the same addresses are not always found, or not always missed"
				continue
			}
			if kind == workload.Hits && hits != traceLength || kind == workload.Misses && hits != 0 {
				x.Missing = fmt.Sprintf("wrong answers: %d of %d addresses found that are each a %s", hits, traceLength, kind)
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
			l.Stream, l.Chain = figure(l.StreamRounds), figure(l.ChainRounds)
			x.Lookups = append(x.Lookups, l)
		} else {
			x.Lookups = []*Lookup{}
		}
	}
	return nil
}

// compareToLevee fills TimesLevee.
func compareToLevee(all []*Structure) {
	for _, base := range all {
		if base.Name != structures[0].name {
			continue
		}
		for _, s := range all {
			for _, l := range s.Lookups {
				if b := base.Lookup(l.Kind, l.Skew); b != nil && b.Stream.Interval[0] > 0 {
					l.TimesLevee = l.Stream.Median / b.Stream.Median
					l.TimesLeveeInterval = &[2]float64{l.Stream.Interval[0] / b.Stream.Interval[1], l.Stream.Interval[1] / b.Stream.Interval[0]}
				}
			}
		}
	}
}
