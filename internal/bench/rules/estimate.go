package rules

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/calibration"
	"levee/internal/bench/load"
	"levee/internal/bench/workload"
	"levee/internal/dataplane/cost"
	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/price"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/usage"
)

// EstimateOptions of the comparison of what the planner estimates with what is measured.
type EstimateOptions struct {
	Options
	Seeds    int       // of generated sets of each shape and size: so many, from Seed on
	Sets     []Named   // filter sets to take instead of generated ones
	Policies []Policed // policies, each rule of which gets a packet
}

// Named is a filter set.
type Named struct {
	Name  string
	Rules []workload.Rule
}

// Policed is a policy.
type Policed struct {
	Name   string
	Policy *policy.Policy
}

// EstimateReport is the document of `levee bench plan --json`; names of fields stay once shipped.
type EstimateReport struct {
	bench.Head
	Frames     int               `json:"frames"` // different packets of a trace
	Cases      []*Estimate       `json:"cases"`
	Conditions *bench.Conditions `json:"conditions"` // of all readings
}

// Estimate holds the planner's estimates for a set or a policy beside the measured times.
type Estimate struct {
	Name  string `json:"name"`
	Rules int    `json:"rules"`
	Seed  uint64 `json:"seed,omitempty"` // of a generated set
	// Alike: each packet is like the one before it (levee cost); else they come in no order.
	Alike bool `json:"alike"`
	// Estimated is by the plan for this machine as it was read, Printed for that of plans in print.
	Estimated  float64           `json:"estimated_ns"`
	Printed    float64           `json:"printed_ns"`
	Measured   *bench.Figure     `json:"measured_ns"`
	Ratio      float64           `json:"ratio"` // estimated over measured
	Conditions *bench.Conditions `json:"conditions"`
	Missing    string            `json:"missing,omitempty"` // why there is no figure
}

// maxSeeds bounds how long the measurement takes.
const maxSeeds = 100

// Estimates compares what plans estimate with what is measured, for the same packets. It needs
// root.
func Estimates(ctx context.Context, o EstimateOptions) (*EstimateReport, error) {
	if len(o.Sizes) == 0 {
		o.Sizes = []int{1000, 10_000}
	}
	if o.Seeds == 0 {
		o.Seeds = 1
	}
	o.SkipLab = true
	err := errors.Join(o.Complete(workload.MaxRules),
		usage.Known("shape of rules", o.Shapes, workload.Shapes))
	if o.Seeds < 0 || o.Seeds > maxSeeds {
		err = errors.Join(err, usage.Wrongf("%d seeds: 1 to %d", o.Seeds, maxSeeds))
	}
	if err != nil {
		return nil, err
	}
	cases, err := o.cases()
	if err != nil {
		return nil, err
	}
	r := &EstimateReport{Head: o.Head(0, estimateCaveats...), Frames: frames}
	r.Conditions, err = o.Each(ctx, "plan", &r.Head, o.estimates(cases), func(i int) error {
		c := &cases[i]
		if err := bench.Interrupted(ctx); err != nil {
			return err
		}
		o.TellLookups(c.label(), 0)
		if err := o.compare(ctx, c); err != nil {
			return err
		}
		r.Cases = append(r.Cases, &c.Estimate)
		return nil
	})
	if err != nil && r.Incomplete == "" {
		return nil, err
	}
	return r, err
}

var estimateCaveats = []string{
	"a set: packets made from its rules alike and in no order, one in ten from anywhere " +
		"(levee bench rules); a policy: a packet for each rule, again and again (levee cost)",
	"estimates are for the slots that decided the packets, and for the machine as it was read " +
		"beside the rounds; printed is what check --explain-compile prints for the same packets",
}

// estimated is a case: a set or a policy.
type estimated struct {
	Estimate
	rules  []workload.Rule
	policy *policy.Policy
}

// cases returns what is compared.
func (o *EstimateOptions) cases() ([]estimated, error) {
	var out []estimated
	for _, s := range o.Sets {
		e := Estimate{Name: s.Name, Rules: len(s.Rules)}
		out = append(out, estimated{Estimate: e, rules: s.Rules})
	}
	for _, p := range o.Policies {
		n := len(p.Policy.Protect) + len(p.Policy.Rules)
		e := Estimate{Name: p.Name, Rules: n, Alike: true}
		out = append(out, estimated{Estimate: e, policy: p.Policy})
	}
	if out != nil {
		return out, nil
	}
	for n := range o.Seeds {
		drawn := o.Options
		drawn.Seed += uint64(n)
		sets, err := drawn.cases()
		if err != nil {
			return nil, err
		}
		for _, s := range sets {
			e := Estimate{Name: s.shape, Rules: len(s.rules), Seed: drawn.Seed}
			out = append(out, estimated{Estimate: e, rules: s.rules})
		}
	}
	return out, nil
}

// estimates returns what each case may take.
func (o *EstimateOptions) estimates(cases []estimated) []time.Duration {
	out := make([]time.Duration, len(cases))
	for i := range cases {
		out[i] = time.Duration(o.tries()*o.Rounds) * estimateRound
		if cases[i].policy != nil {
			out[i] = time.Duration(cases[i].Rules) * time.Second
		}
	}
	return out
}

// compare fills one case. What the compiler or the kernel refuses is in the report.
func (o *EstimateOptions) compare(ctx context.Context, c *estimated) (err error) {
	p := c.policy
	if p == nil {
		if p, err = load.Parse(Text(c.rules, dropAll), nil); err != nil {
			return err
		}
	}
	planned, err := plan.New(ir.Build(p), plan.Target{})
	if err != nil {
		c.Missing = err.Error()
		return nil
	}
	var traffic []plan.Traffic
	if c.Alike {
		traffic, err = o.alike(ctx, c, p)
	} else {
		traffic, err = o.inNoOrder(ctx, c, p, planned)
	}
	if err != nil || c.Missing != "" {
		return err
	}
	c.Estimated = pick(c.Alike, planned, traffic,
		price.Machine{Step: c.Conditions.Step, Wait: c.Conditions.Wait, Load: c.Conditions.Load})
	c.Printed = pick(c.Alike, planned, traffic, price.Default)
	c.Ratio = c.Estimated / c.Measured.Median
	return nil
}

func pick(alike bool, p *plan.Plan, traffic []plan.Traffic, m price.Machine) float64 {
	least, ns := p.Estimate(m, traffic)
	if alike {
		return least
	}
	return ns
}

// inNoOrder measures a set on a trace. The counters tell which slots decided.
func (o *EstimateOptions) inNoOrder(ctx context.Context, c *estimated, p *policy.Policy,
	planned *plan.Plan) ([]plan.Traffic, error) {
	prog, err := codegen.Compile(p, codegen.Target{})
	if err != nil {
		c.Missing = err.Error()
		return nil, nil
	}
	runner, err := loader.NewRunner(prog)
	if err != nil {
		c.Missing = err.Error()
		return nil, nil
	}
	defer runner.Close()
	list, err := packets(c.rules, frames, workload.Uniform, o.Seed)
	if err != nil {
		return nil, err
	}
	rounds, err := o.trace(ctx, runner, list)
	if err != nil {
		return nil, err
	}
	ns, _, conditions := counted(rounds)
	c.Measured, c.Conditions = bench.FigureOf(ns), conditions
	counters := runner.Counters()
	return planned.Spread(func(slot int) float64 { return float64(counters[slot].Packets) }), nil
}

// How many packets of a policy are run at once.
const (
	repeat      = 30_000
	repeatQuick = 3_000
)

// alike measures a packet for each rule of a policy.
func (o *EstimateOptions) alike(ctx context.Context, c *estimated,
	p *policy.Policy) ([]plan.Traffic, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := repeat
	if o.Quick {
		n = repeatQuick
	}
	before := o.Machine.Read()
	rep, err := cost.Measure(ctx, p, cost.Options{
		Repeat: n, Rules: max(1, c.Rules), Progress: func(cost.Progress) {},
	})
	if err != nil {
		return nil, err
	}
	if len(rep.Rules) == 0 {
		return nil, fmt.Errorf("%s: no packet was found for any rule", c.Name)
	}
	interval := [2]float64{rep.Ns - rep.Spread, rep.Ns + rep.Spread}
	c.Measured = &bench.Figure{Median: rep.Ns, Interval: interval}
	c.Conditions = bench.ConditionsOf(append([]calibration.Reading{before}, o.Machine.Read()))
	var traffic []plan.Traffic
	for _, r := range rep.Rules {
		var decoded packet.Packet
		packet.Decode(r.Frame, &decoded)
		traffic = append(traffic, plan.Traffic{Class: ir.ClassOf(&decoded), Slot: r.By, Packets: 1})
	}
	return traffic, nil
}
