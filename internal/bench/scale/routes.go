package scale

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"levee/internal/bench/option"
	"levee/internal/bench/workload"
	"levee/internal/host"
	"levee/internal/kernel"
)

// RouteReport is the outcome of a comparison of routing tables.
type RouteReport struct {
	Started    time.Time
	Command    string // to repeat it
	Incomplete string // why it ended early
	Quick      bool
	Rounds     int
	Seed       uint64
	Machine    host.Info
	Cases      []*SetCase
	Caveats    []string
	Conditions *Conditions // of all readings
}

// RouteOptions are Options of routing tables; of those Window, Attempts, SkipLab and SkipLookups are not used.
type RouteOptions struct {
	Options
	Families []string       // "4", "6"; nil for both
	Tables   []string       // of Tables, nil for all; not used with Data
	Data     []netip.Prefix // a table of one's own, of one family or both
	DataName string
	// Steps, if given, is told what is being done, and how much of all.
	Steps func(doing string, done, total int)

	full bool // sizes were not chosen: a full view as well
}

// Tables are the kinds of table.
var Tables = []string{"internet", "48s", "128s"}

// fullView is how many routes an Internet full view has, as of the distributions of package workload.
var fullView = map[int]int{32: 901_899, 128: 160_147}

// densities are how many /48s there are for one that is routed.
var densities = []uint64{1, 16, 4096}

// hostsBlock is a /108: as many addresses as may be drawn.
const hostsBlock = 1 << 20

var routeCaveats = []string{
	"ns above the same loop without a look-up; stream: independent look-ups, which the CPU overlaps; chain: each waits for the one before",
	"mix is half hits and half misses; half of the misses lie beside a route; uniform and Zipf (exponent 1.1) say how often routes come by",
	"kernel FIB: bpf_fib_lookup from a program of traffic control in a namespace of its own, all routes by one gateway; it finds a next hop and checks the MTU, the others say whether there is a route",
	"insertion: FIB by rtnetlink, 1,000 routes a system call; LPM trie by batches of 4,096; levee static is built aside and loaded whole",
	"memory of maps is what the kernel charges, of the LPM trie its entries without forks and the allocator's rounding; of the FIB the growth of the kernel's own memory while routes are installed: none below 1 MB, and to some MB on a busy machine",
	"depth is of the hits; of the LPM trie and the IPv6 FIB it is counted in a copy of their shape, since the kernel does not tell; of the IPv4 FIB it is the kernel's own, over its leaves",
}

// Routes compares routing tables. It needs root. When ctx ends early the report has the cases and traffics that
// were complete, says that it is incomplete, and comes with the error.
func Routes(ctx context.Context, o RouteOptions) (r *RouteReport, failed error) {
	if o.Sizes == nil {
		o.Sizes = []int{1000, 100_000}
		if o.Quick {
			o.Sizes = []int{1000, 10_000}
		}
		o.full = !o.Quick
	}
	if o.Quick && o.Rounds == 0 {
		o.Rounds = minRounds
	}
	if err := o.complete(workload.MaxPrefixes); err != nil {
		return nil, fmt.Errorf("bench route: %w", err)
	}
	from := slices.DeleteFunc(slices.Clone(structures), func(s structure) bool { return s.hostsOnly })
	from = append(from, fib(ctx))
	if err := o.known(from); err != nil {
		return nil, fmt.Errorf("bench route: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root: sudo levee bench route")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, kernel.LoadError("raise the limit of locked memory", err)
	}
	r = &RouteReport{
		Started: time.Now().UTC().Truncate(time.Second), Command: o.Command, Quick: o.Quick, Rounds: o.Rounds, Seed: o.Seed,
		Machine: host.Fingerprint(0), Caveats: routeCaveats,
	}
	end, err := o.observe()
	if err != nil {
		return nil, fmt.Errorf("bench route: %w", err)
	}
	defer func() {
		if r != nil {
			r.Conditions = conditionsOf(o.machine.all)
		}
		failed = errors.Join(failed, end())
	}()
	plans := o.plans()
	o.count(plans, from)
	o.depths = true
	for _, p := range plans {
		w, err := p.draw()
		if err != nil {
			return nil, fmt.Errorf("bench route: %w", err)
		}
		c := &SetCase{Family: w.family(), Entries: w.entries, Size: len(w.prefixes), Structures: []*Structure{}, Lab: []*Tool{}}
		r.Cases = append(r.Cases, c)
		if err := o.lookups(ctx, c, w, from); err != nil {
			err = fmt.Errorf("bench route: %w", err)
			if ctx.Err() != nil {
				r.Incomplete = "interrupted"
				return r, err
			}
			return nil, err
		}
	}
	return r, nil
}

// known refuses names that there are not.
func (o *RouteOptions) known(from []structure) error {
	var names []string
	for _, s := range from {
		names = append(names, s.name)
	}
	return errors.Join(option.Known("structure", o.Only, names), option.Known("kind of table", o.Tables, Tables))
}

// count turns what lookups tells into steps of all.
func (o *RouteOptions) count(plans []plan, from []structure) {
	if o.Steps == nil {
		return
	}
	used := 0
	for _, s := range from {
		if o.wants(s.name) {
			used++
		}
	}
	done, total := 0, len(plans)*(used+len(traffics))
	o.tell = func(doing string, _ float64) {
		o.Steps(doing, done, total)
		done++
	}
}

// plan is a table to be drawn when its turn comes: all of them at once would be hundreds of MB.
type plan struct {
	draw func() (*work, error)
}

func (o *RouteOptions) plans() []plan {
	var out []plan
	for _, width := range []int{32, 128} {
		if len(o.Families) > 0 && !slices.Contains(o.Families, map[int]string{32: "4", 128: "6"}[width]) {
			continue
		}
		if o.Data != nil {
			out = append(out, o.dataPlans(width)...)
			continue
		}
		if o.has("internet") {
			out = append(out, o.internet(width)...)
		}
		if width == 128 {
			out = append(out, o.blocks()...)
		}
	}
	return out
}

func (o *RouteOptions) has(table string) bool {
	return len(o.Tables) == 0 || slices.Contains(o.Tables, table)
}

// dataPlans are the sizes of a table of one's own, and all of it.
func (o *RouteOptions) dataPlans(width int) []plan {
	var out []plan
	sets := SetOptions{Options: o.Options, DataName: o.DataName}
	for _, w := range sets.dataCases(workload.Family(o.Data, width), width) {
		out = append(out, plan{func() (*work, error) { return &w, nil }})
	}
	return out
}

func (o *RouteOptions) internet(width int) []plan {
	sizes := slices.Clone(o.Sizes)
	if o.full {
		sizes = append(sizes, fullView[width])
	}
	var out []plan
	for _, n := range sizes {
		out = append(out, plan{func() (*work, error) {
			w := &work{width: width, entries: "Internet-like"}
			if width == 32 {
				w.prefixes = workload.Internet4(n, o.Seed)
			} else {
				w.prefixes = workload.Internet6(n, o.Seed)
			}
			return w, nil
		}})
	}
	return out
}

// blocks are /48s of several densities and addresses of a /108.
func (o *RouteOptions) blocks() []plan {
	var out []plan
	block := func(entries, base string, length, n int, span uint64) {
		out = append(out, plan{func() (*work, error) {
			p, err := workload.Block(netip.MustParseAddr(base), length, n, span, o.Seed)
			return &work{width: 128, entries: entries, prefixes: p}, err
		}})
	}
	if o.has("48s") {
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
	if o.has("128s") {
		for _, n := range o.Sizes {
			block("/128s in a /108", "2a00:0:0:1::", 128, n, hostsBlock)
		}
	}
	return out
}

// insertion is the time from a list of routes in memory to all of them in force, for each route, in ns.
func (s *Structure) insertion(size int) float64 {
	return (s.BuildNs + s.LoadNs) / math.Max(float64(size), 1)
}
