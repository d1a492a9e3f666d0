// Package rules measures policies as they grow, from ten rules to a hundred thousand in the shapes
// of ClassBench: levee's compiled program on a trace of different packets, above an empty program
// (trace.go), and packets a second of levee, nftables and iptables with the same rules (package
// load).
package rules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/load"
	"levee/internal/bench/workload"
	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/lab"
	"levee/internal/packet"
	"levee/internal/usage"
)

// Report is the document of `levee bench rules --json`; names of fields stay once shipped.
type Report struct {
	bench.Head
	Frames int     `json:"frames"` // different packets of a trace
	Cases  []*Case `json:"cases"`
	// Conditions of all readings, null where there were none.
	Conditions *bench.Conditions `json:"conditions"`
}

// Case is one set of rules.
type Case struct {
	Shape string         `json:"shape"` // "acl", "fw", "ipc", or the name of a file
	Size  int            `json:"size"`
	Left  int            `json:"left_out,omitempty"` // filters of a file that no packet can match
	Levee *Policy        `json:"levee"`              // the compiled policy, on a trace
	Lab   []*load.Result `json:"lab"`                // packets a second through the lab
}

// Policy is levee's program for the rules.
type Policy struct {
	Missing   string `json:"missing,omitempty"` // why there is no figure
	ResolveNs int64  `json:"resolve_ns"`        // text to meaning
	CompileNs int64  `json:"compile_ns"`        // meaning to program and tables
	LoadNs    int64  `json:"load_ns"`           // into the kernel, its verifier included
	Bytes     uint64 `json:"bytes"`             // that the kernel charges for program and maps
	// Ns a packet above an empty program on the same trace.
	Uniform *bench.Figure  `json:"uniform_ns"`
	Zipf    *bench.Figure  `json:"zipf_ns"`
	NsEmpty float64        `json:"ns_empty"` // the empty program with test loop and copying
	Raw     map[string]any `json:"rounds"`   // by skew, those that count
	// Phases are all rounds by skew, also those that do not count, each with what the machine gave
	// beside it; Conditions and ZipfConditions are that of the rounds that count.
	Phases         map[string][]TraceRound `json:"phases"`
	Conditions     *bench.Conditions       `json:"uniform_conditions"`
	ZipfConditions *bench.Conditions       `json:"zipf_conditions"`
	Tables         []string                `json:"tables"` // what the compiler chose
}

// Options of rules. The zero value measures everything at the default sizes.
type Options struct {
	load.Options
	Shapes   []string // nil for all
	Data     []workload.Rule
	DataName string
	Left     int
	// Interpreted has the rules one by one in an eBPF program measured in the lab, with the
	// kernel's JIT and without.
	Interpreted bool

	calmest float64 // the least pressure of a round, 0 before the first
}

// frames is the number of different packets that a trace of rules has: too many for branch
// predictors to learn, and more than there are rules at most, so that the caches hold no more of
// the tables than under a flood. Of 8,192 packets, which meet a twelfth of 100,000 rules, a packet
// seemed to take two thirds of the time or half of it.
const frames = 1 << 17

// does not compile if there may be more rules than packets
const _ = uint(frames - workload.MaxRules)

// Run measures rule sets of all sizes. It needs root, and for the lab two cores. An interrupted
// measurement returns an error and what it has measured.
func Run(ctx context.Context, o Options) (*Report, error) {
	err := errors.Join(o.Complete(workload.MaxRules),
		usage.Known("shape of rules", o.Shapes, workload.Shapes),
		usage.Known("tool", o.Only, load.WithNames(nil, contenders(nil, true))))
	if err != nil {
		return nil, err
	}
	cases, err := o.cases()
	if err != nil {
		return nil, err
	}
	if o.Interpreted {
		// a kernel that cannot says so before anything is measured
		if err := errors.Join(bench.Ready("rules"), lab.Interpreted(func() error {
			return nil
		})); err != nil {
			return nil, err
		}
	}
	r := &Report{Head: o.Head(0, caveats...), Frames: frames}
	if o.Interpreted {
		r.Caveats = append(r.Caveats, "interpreted: loaded while the kernel's JIT was off; "+
			"what others loaded in these moments is interpreted, too")
	}
	r.Conditions, err = o.Each(ctx, "rules", &r.Head, o.estimates(cases), func(i int) error {
		w := &cases[i]
		c := &Case{Shape: w.shape, Size: len(w.rules), Left: o.Left, Lab: []*load.Result{}}
		r.Cases = append(r.Cases, c)
		return o.measure(ctx, c, w)
	})
	if err != nil && r.Incomplete == "" {
		return nil, err
	}
	return r, err
}

// measure fills one case.
func (o *Options) measure(ctx context.Context, c *Case, w *ruleSet) (err error) {
	if !o.SkipLookups && bench.Wanted(o.Only, "levee") {
		if c.Levee, err = o.policy(ctx, w); err != nil {
			return err
		}
	}
	if o.SkipLab {
		return nil
	}
	list, err := packets(w.rules, floodFrames, workload.Uniform, o.Seed)
	if err != nil {
		return err
	}
	c.Lab, err = o.Flood(ctx, w.shape, w.String(), len(w.rules), contenders(w.rules, o.Interpreted),
		"rules", list)
	return err
}

// floodFrames is the number of different packets that a flood has.
const floodFrames = 1 << 16

// estimateRound is a rough time of timing a policy for a round.
const estimateRound = 500 * time.Millisecond

// estimates returns what each case may take.
func (o *Options) estimates(cases []ruleSet) []time.Duration {
	out := make([]time.Duration, len(cases))
	for i := range cases {
		n := len(cases[i].rules)
		if !o.SkipLookups {
			out[i] = time.Duration(n)*load.EstimateEntry +
				time.Duration(2*o.tries()*o.Rounds)*estimateRound
		}
		out[i] += o.Estimate(len(contenders(nil, o.Interpreted)), n)
	}
	return out
}

var caveats = []string{
	"ns: the compiled policy on a trace of different packets, above an empty program on the same " +
		"trace; nine of ten packets are made from the rules",
	"its rounds are those beside which neighbours took least of memory and core, of up to three " +
		"times as many; which, the machine is asked, never how long a packet took",
	"in the lab every rule drops, so that all packets are dropped; ns there include the path " +
		"that all rules share",
	load.Caveat,
	"memory of tools in the lab is the growth of the kernel's own memory while loading, to " +
		"some 100 KB",
}

type ruleSet struct {
	shape string
	rules []workload.Rule
}

func (w *ruleSet) String() string { return fmt.Sprintf("%d %s rules", len(w.rules), w.shape) }

func (o *Options) cases() ([]ruleSet, error) {
	if o.Data != nil {
		return []ruleSet{{o.DataName, o.Data}}, nil
	}
	names := o.Shapes
	if names == nil {
		names = workload.Shapes
	}
	var out []ruleSet
	for _, name := range names {
		for _, n := range o.Sizes {
			rules, err := workload.Rules(name, n, o.Seed)
			if err != nil {
				return nil, err
			}
			out = append(out, ruleSet{name, rules})
		}
	}
	return out, nil
}

// policy compiles, loads and times levee's program. What the compiler or the kernel refuses is in
// the report.
func (o *Options) policy(ctx context.Context, w *ruleSet) (*Policy, error) {
	out := &Policy{Raw: map[string]any{}, Phases: map[string][]TraceRound{}}
	refused := func(err error) (*Policy, error) {
		out.Missing = err.Error()
		return out, nil
	}
	text := Text(w.rules, dropAll)
	o.TellLookups(fmt.Sprintf("%s: compiling", w), 0)
	start := time.Now()
	p, err := load.Parse(text, nil)
	if err != nil {
		return refused(err)
	}
	out.ResolveNs = int64(time.Since(start))
	start = time.Now()
	prog, err := codegen.Compile(p, codegen.Target{})
	if err != nil {
		return refused(err)
	}
	out.CompileNs = int64(time.Since(start))
	for _, t := range prog.Tables {
		out.Tables = append(out.Tables,
			fmt.Sprintf("%s: %s, %d bytes: %s", t.For, t.Kind, t.Bytes, t.Why))
	}
	start = time.Now()
	runner, err := loader.NewRunner(prog)
	if err != nil {
		return refused(err)
	}
	defer runner.Close()
	out.LoadNs = int64(time.Since(start))
	if out.Bytes, err = runner.Memory(); err != nil {
		return nil, err
	}
	for _, skew := range []workload.Skew{workload.Uniform, workload.Zipf} {
		if err := bench.Interrupted(ctx); err != nil {
			return nil, err
		}
		o.TellLookups(fmt.Sprintf("%s: %s", w, skew), 0.5)
		if err := o.onTrace(ctx, out, runner, w.rules, skew); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// repeats is the number of packets that a measurement runs: the whole trace several times over.
const repeats = 4 * frames

// onTrace measures packets of one skew.
func (o *Options) onTrace(ctx context.Context, out *Policy, runner *loader.Runner,
	rules []workload.Rule, skew workload.Skew) error {
	list, err := packets(rules, frames, skew, o.Seed)
	if err != nil {
		return err
	}
	rounds, err := o.trace(ctx, runner, list)
	if err != nil {
		return err
	}
	ns, empty, conditions := counted(rounds)
	out.Raw[string(skew)], out.Phases[string(skew)], out.NsEmpty = ns, rounds,
		bench.FigureOf(empty).Median
	if skew == workload.Uniform {
		out.Uniform, out.Conditions = bench.FigureOf(ns), conditions
	} else {
		out.Zipf, out.ZipfConditions = bench.FigureOf(ns), conditions
	}
	return nil
}

// packets makes packets for the rules.
func packets(rules []workload.Rule, n int, skew workload.Skew, seed uint64) ([][]byte, error) {
	headers, err := workload.Headers(rules, n, skew, seed)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, n)
	ack := uint8(0x10)
	for i := range headers {
		h := &headers[i]
		s := packet.Spec{From: h.Src, To: h.Dst, Proto: &h.Proto}
		switch h.Proto {
		case packet.ProtoTCP:
			s.Flags = &ack
			s.FromPort, s.ToPort = &h.SrcPort, &h.DstPort
		case packet.ProtoUDP:
			s.FromPort, s.ToPort = &h.SrcPort, &h.DstPort
		}
		if out[i], err = packet.Build(s); err != nil {
			return nil, fmt.Errorf("making packets: %w", err)
		}
	}
	return out, nil
}

// Raw returns what the report is as JSON by itself; the document goes beside it.
func (r *Report) Raw() any { return r }
