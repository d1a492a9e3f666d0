package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"levee/internal/bench/option"
	"levee/internal/bench/workload"
	"levee/internal/dataplane"
	"levee/internal/filter/codegen"
	"levee/internal/host"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// RulesReport is what `levee bench rules --json` prints; names of fields stay once shipped.
type RulesReport struct {
	Started time.Time   `json:"started"`
	Command string      `json:"command"` // to repeat it
	Quick   bool        `json:"quick"`
	Rounds  int         `json:"rounds"`
	Seed    uint64      `json:"seed"`
	Frames  int         `json:"frames"` // different packets of a trace
	Machine host.Info   `json:"machine"`
	Cases   []*RuleCase `json:"cases"`
	Caveats []string    `json:"caveats"`
	// Conditions of all readings, null where there were none.
	Conditions *Conditions `json:"conditions"`
	// Incomplete is why the measurement ended early, empty if it did not. The last case then lacks figures.
	Incomplete string `json:"incomplete,omitempty"`
}

// RuleCase is one set of rules.
type RuleCase struct {
	Shape string  `json:"shape"` // "acl", "fw", "ipc", or the name of a file
	Size  int     `json:"size"`
	Left  int     `json:"left_out,omitempty"` // filters of a file that no packet can match
	Levee *Policy `json:"levee"`              // the compiled policy, on a trace
	Lab   []*Tool `json:"lab"`                // packets a second through the lab
}

// Policy is levee's program for the rules.
type Policy struct {
	Missing   string `json:"missing,omitempty"` // why there is no figure
	ResolveNs int64  `json:"resolve_ns"`        // text to meaning
	CompileNs int64  `json:"compile_ns"`        // meaning to program and tables
	LoadNs    int64  `json:"load_ns"`           // into the kernel, its verifier included
	Bytes     uint64 `json:"bytes"`             // that the kernel charges for program and maps
	// Ns a packet above an empty program on the same trace.
	Uniform *Figure        `json:"uniform_ns"`
	Zipf    *Figure        `json:"zipf_ns"`
	NsEmpty float64        `json:"ns_empty"` // the empty program with test loop and copying
	Raw     map[string]any `json:"rounds"`   // by skew, those that count
	// Phases are all rounds by skew, also those that do not count, each with what the machine gave beside it; Conditions and
	// ZipfConditions are that of the rounds that count.
	Phases         map[string][]TraceRound `json:"phases"`
	Conditions     *Conditions             `json:"uniform_conditions"`
	ZipfConditions *Conditions             `json:"zipf_conditions"`
	Tables         []string                `json:"tables"` // what the compiler chose
}

// RuleOptions are Options of rules.
type RuleOptions struct {
	Options
	Shapes   []string // nil for all
	Data     []workload.Rule
	DataName string
	Left     int
}

// frames is how many different packets a trace of rules has: too many for branch predictors to learn, and more than there are
// rules at most, so that the caches hold no more of the tables than under a flood. Of 8,192 packets, which meet a twelfth of
// 100,000 rules, a packet seemed to take two thirds of the time or half of it.
const frames = 1 << 17

const _ = uint(frames - workload.MaxRules) // does not compile if there may be more rules than packets

// Rules measures rule sets of all sizes. It needs root, and for the lab two cores. An interrupted measurement
// returns an error and what it has measured.
func Rules(ctx context.Context, o RuleOptions) (r *RulesReport, failed error) {
	err := errors.Join(o.complete(workload.MaxRules), option.Known("shape of rules", o.Shapes, workload.Shapes),
		option.Known("tool", o.Only, withTools(nil, ruleTools(nil))))
	if err != nil {
		return nil, fmt.Errorf("bench rules: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root: sudo levee bench rules")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, kernel.LoadError("raise the limit of locked memory", err)
	}
	r = &RulesReport{
		Started: time.Now().UTC().Truncate(time.Second), Command: o.Command, Quick: o.Quick, Rounds: o.Rounds, Seed: o.Seed,
		Frames: frames, Machine: host.Fingerprint(0), Caveats: ruleCaveats,
	}
	cases, err := o.cases()
	if err != nil {
		return nil, fmt.Errorf("bench rules: %w", err)
	}
	end, err := o.observe()
	if err != nil {
		return nil, fmt.Errorf("bench rules: %w", err)
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
		c := &RuleCase{Shape: w.shape, Size: len(w.rules), Left: o.Left, Lab: []*Tool{}}
		r.Cases = append(r.Cases, c)
		if err := o.measure(ctx, c, w); err != nil {
			if i == 0 && ctx.Err() == nil {
				return nil, err // it cannot be measured here
			}
			r.Incomplete, err = incomplete(ctx, "bench rules", i, len(cases), err)
			return r, err
		}
	}
	return r, nil
}

// measure fills one case.
func (o *RuleOptions) measure(ctx context.Context, c *RuleCase, w *ruleWork) (err error) {
	if !o.SkipLookups && o.wants("levee") {
		if c.Levee, err = o.policy(ctx, w); err != nil {
			return err
		}
	}
	if o.SkipLab {
		return nil
	}
	return o.floodRules(ctx, c, w)
}

// estimates are what each case may take.
func (o *RuleOptions) estimates(cases []ruleWork) []time.Duration {
	out := make([]time.Duration, len(cases))
	for i := range cases {
		n := len(cases[i].rules)
		if !o.SkipLookups {
			out[i] = time.Duration(n)*estimateLoad + time.Duration(2*o.tries()*o.Rounds)*estimatePolicy
		}
		out[i] += o.estimateLab(ruleToolsMade, n)
	}
	return out
}

var ruleCaveats = []string{
	"ns: the compiled policy on a trace of different packets, above an empty program on the same trace; nine of ten packets are made from the rules",
	"its rounds are those beside which neighbours took least of memory and core, of up to three times as many; which, the machine is asked, never how long a packet took",
	"in the lab every rule drops, so that all packets are dropped; ns there include the path that all rules share",
	loadCaveat,
	"memory of tools in the lab is the growth of the kernel's own memory while loading, to some 100 KB",
	"veth has no DMA and no descriptors: ratios carry over to other machines, absolute packets a second do not",
}

type ruleWork struct {
	shape string
	rules []workload.Rule
}

func (w *ruleWork) String() string { return fmt.Sprintf("%d %s rules", len(w.rules), w.shape) }

func (o *RuleOptions) cases() ([]ruleWork, error) {
	if o.Data != nil {
		return []ruleWork{{o.DataName, o.Data}}, nil
	}
	names := o.Shapes
	if names == nil {
		names = workload.Shapes
	}
	var out []ruleWork
	for _, name := range names {
		for _, n := range o.Sizes {
			rules, err := workload.Rules(name, n, o.Seed)
			if err != nil {
				return nil, err
			}
			out = append(out, ruleWork{name, rules})
		}
	}
	return out, nil
}

// policy compiles, loads and times levee's program. What the compiler or the kernel refuses is in the
// report.
func (o *RuleOptions) policy(ctx context.Context, w *ruleWork) (*Policy, error) {
	out := &Policy{Raw: map[string]any{}, Phases: map[string][]TraceRound{}}
	refused := func(err error) (*Policy, error) {
		out.Missing = err.Error()
		return out, nil
	}
	text := leveeText(w.rules)
	o.tell(fmt.Sprintf("%s: compiling", w), 0)
	start := time.Now()
	p, err := parse(text, nil)
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
		out.Tables = append(out.Tables, fmt.Sprintf("%s: %s, %d bytes: %s", t.For, t.Kind, t.Bytes, t.Why))
	}
	start = time.Now()
	runner, err := dataplane.NewRunner(prog)
	if err != nil {
		return refused(err)
	}
	defer runner.Close()
	out.LoadNs = int64(time.Since(start))
	if out.Bytes, err = runner.Memory(); err != nil {
		return nil, err
	}
	for _, skew := range []workload.Skew{workload.Uniform, workload.Zipf} {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		o.tell(fmt.Sprintf("%s: %s", w, skew), lookupShare/2)
		if err := o.onTrace(ctx, out, runner, w.rules, skew); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// repeats is how many packets a measurement runs: the whole trace several times over.
const repeats = 4 * frames

// onTrace measures packets of one skew.
func (o *RuleOptions) onTrace(ctx context.Context, out *Policy, runner *dataplane.Runner, rules []workload.Rule, skew workload.Skew) error {
	list, err := ruleFrames(rules, frames, skew, o.Seed)
	if err != nil {
		return err
	}
	rounds, err := o.trace(ctx, runner, list)
	if err != nil {
		return err
	}
	ns, empty, conditions := counted(rounds)
	out.Raw[string(skew)], out.Phases[string(skew)], out.NsEmpty = ns, rounds, figure(empty).Median
	if skew == workload.Uniform {
		out.Uniform, out.Conditions = figure(ns), conditions
	} else {
		out.Zipf, out.ZipfConditions = figure(ns), conditions
	}
	return nil
}

// ruleFrames makes packets for the rules.
func ruleFrames(rules []workload.Rule, n int, skew workload.Skew, seed uint64) ([][]byte, error) {
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
