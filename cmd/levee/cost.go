package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/dataplane"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/lang/policy"
)

const costLong = `Measure what a packet costs in the compiled program, in nanoseconds above an empty program of the same kind, and by the
rule that it reaches. Packets are made from the rules; the kernel runs both programs on them in turns (A B B A), and
the difference is reported: the median of the rounds, and half the distance between their quartiles as spread.

Each packet is repeated, so tables that it needs are in the cache and its branches are predicted: the figures are lower bounds, and a
flood of many sources costs more, most where sets are larger than the cache. About a second a rule; at most --rules of them are measured: the first that packets reach or, of
more than 1,000 rules, a sample that is spread evenly over the policy, which the output says.`

const costExample = `  sudo levee cost edge.levee
  sudo levee cost edge.levee --json | jq .ns_per_packet`

type costFlags struct {
	repeat, rules int
	json          bool
}

func newCost(e *env) *cobra.Command {
	var f costFlags
	cmd := &cobra.Command{
		Use:     "cost FILE",
		Short:   "Measure the nanoseconds that a packet costs, by the rule it reaches",
		Long:    costLong,
		Example: costExample,
		Args:    wantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.repeat < 1 || f.repeat > 10_000_000:
				return usagef(cmd, "--repeat %d: use 1 to 10,000,000", f.repeat)
			case f.rules < 1:
				return usagef(cmd, "--rules %d: at least one rule is measured", f.rules)
			}
			return e.cost(args[0], &f)
		},
	}
	cmd.Flags().IntVar(&f.repeat, "repeat", 100_000, "packets in one run of the kernel")
	cmd.Flags().IntVar(&f.rules, "rules", 50, "measure at most so many rules")
	jsonFlag(cmd, &f.json)
	return cmd
}

// costReport is the object of `levee cost --json`; times are nanoseconds a packet.
type costReport struct {
	NsPerPacket float64    `json:"ns_per_packet"` // above the empty program, over all packets below alike
	NsEmpty     float64    `json:"ns_empty"`      // the empty program with the kernel's test loop
	Spread      float64    `json:"spread"`        // half the distance between the quartiles of ns_per_packet
	Rules       []costRule `json:"rules"`
	NotReached  []string   `json:"not_reached"` // rules that no packet was found for
	NotMeasured int        `json:"not_measured"`
	SampleEvery int        `json:"sample_every,omitempty"` // one rule in so many was looked at; not there: all were
	Repeat      int        `json:"repeat"`
}

type costRule struct {
	Rule        string  `json:"rule"`
	Label       string  `json:"label"`
	Verdict     string  `json:"verdict"`
	NsPerPacket float64 `json:"ns_per_packet"`
	Spread      float64 `json:"spread"`
	Packet      string  `json:"packet"` // in hexadecimal
	Text        string  `json:"text"`
}

func (e *env) cost(file string, f *costFlags) error {
	if err := e.privileged(); err != nil {
		return err
	}
	p, err := e.loadPolicy(file)
	if err != nil {
		return err
	}
	prog, err := codegen.Compile(p, codegen.Target{})
	if err != nil {
		return err
	}
	runner, err := dataplane.NewRunner(prog)
	if err != nil {
		return err
	}
	defer runner.Close()
	ev := oracle.New(p)
	if err := fillDynamic(p, &engines{oracle: ev, bpf: runner}); err != nil {
		return err
	}
	ctx, stop := e.signals()
	defer stop()
	every := sampleEvery(len(p.Protect)+len(p.Rules), f.rules)
	frames, err := e.findPackets(ctx, p, ev, every)
	if err != nil {
		return err
	}
	rep, err := e.measure(ctx, p, runner, frames, every, f)
	if err != nil {
		return err
	}
	if f.json {
		return e.printJSON(rep)
	}
	e.printCost(p, rep)
	return nil
}

// manyRules is from how many rules on only a sample is looked at: for each packet that is tried the oracle walks all rules.
const manyRules = 1000

// sampleEvery is 1 to look at all rules, or n to look at each n-th of them.
func sampleEvery(rules, most int) int {
	if rules <= max(manyRules, most) {
		return 1
	}
	return (rules + most - 1) / most
}

// findPackets finds a packet for each rule that is looked at.
func (e *env) findPackets(ctx context.Context, p *policy.Policy, ev *oracle.Evaluator, every int) ([][]byte, error) {
	progress := e.progress()
	defer progress.clear()
	begin := e.now()
	return reach(p, ev, every, func(rule, of int) error {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted while packets were sought, at rule %d of %d", rule, of)
		}
		progress.printf("finding packets: rule %d of %d%s", rule, of, left(e.now().Sub(begin), rule, of))
		return nil
	})
}

// left says about how long the rest takes when done of all took so long; nothing at the beginning.
func left(took time.Duration, done, all int) string {
	if done == 0 || took < time.Second {
		return ""
	}
	rest := time.Duration(float64(took) / float64(done) * float64(all-done))
	return fmt.Sprintf(", about %v left", rest.Round(time.Second))
}

// fillDynamic puts one entry of each family into every dynamic set, so that rules about them can be reached.
func fillDynamic(p *policy.Policy, g *engines) error {
	for _, s := range p.Sets {
		if s.Kind != policy.Dynamic {
			continue
		}
		for i, a := range []netip.Addr{reachEntry4, reachEntry6} {
			if i < s.Max {
				if err := g.add(entry{s, reachElement(s, a)}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (e *env) measure(ctx context.Context, p *policy.Policy, runner *dataplane.Runner, frames [][]byte, every int, f *costFlags) (*costReport, error) {
	rep := &costReport{Rules: []costRule{}, NotReached: []string{}, Repeat: f.repeat}
	if every > 1 {
		rep.SampleEvery = every
	}
	slots := p.Slots()
	progress := e.progress()
	defer progress.clear()
	var rounds [][]float64
	begin, user, all := e.now(), 0, 0
	for _, frame := range frames {
		if frame != nil {
			all++
		}
	}
	if every == 1 {
		all = min(all, f.rules+1) // and the default
	}
	for i, s := range slots {
		switch {
		case frames[i] == nil:
			switch {
			case s.Rule == nil:
			case user%every == 0:
				rep.NotReached = append(rep.NotReached, p.Where(s))
			default:
				rep.NotMeasured++
			}
			if s.Rule != nil {
				user++
			}
			continue
		case every == 1 && len(rep.Rules) >= f.rules && s.Reason != policy.ByDefault:
			rep.NotMeasured++
			continue
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted after %s", plural(len(rep.Rules), "rule"))
		}
		progress.printf("measuring %s, %d of %d%s", p.Where(s), len(rep.Rules)+1, all, left(e.now().Sub(begin), len(rep.Rules), all))
		c, err := runner.Bench([][]byte{frames[i]}, f.repeat)
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, c.Rounds)
		rep.NsEmpty += c.NsEmpty
		r := costRule{
			Rule: p.Where(s), Label: p.LabelOf(s), Verdict: s.Action.String(),
			NsPerPacket: c.NsPerPacket, Spread: c.Spread, Packet: fmt.Sprintf("%x", frames[i]),
		}
		if s.Rule != nil {
			r.Text = s.Rule.Text
			user++
		}
		rep.Rules = append(rep.Rules, r)
	}
	rep.NsEmpty /= float64(max(1, len(rounds)))
	rep.NsPerPacket, rep.Spread = overall(rounds)
	return rep, nil
}

// overall is the median, over the rounds, of the mean over the packets, and half the distance of its quartiles.
func overall(rounds [][]float64) (median, spread float64) {
	if len(rounds) == 0 {
		return 0, 0
	}
	means := make([]float64, len(rounds[0]))
	for _, packet := range rounds {
		for i := range means {
			means[i] += packet[i] / float64(len(rounds))
		}
	}
	slices.Sort(means)
	n := len(means)
	return means[n/2], (means[n*3/4] - means[n/4]) / 2
}

func (e *env) printCost(p *policy.Policy, rep *costReport) {
	t := newTable("NS ± VERDICT RULE LABEL MATCH", ">", ">", "<", "<", "<", "<")
	for _, r := range rep.Rules {
		t.row(fmt.Sprintf("%.1f", r.NsPerPacket), fmt.Sprintf("%.1f", r.Spread), r.Verdict, r.Rule, r.Label, r.Text)
	}
	t.print(e.stdout, "")
	fmt.Fprintf(e.stdout, "\n%s: %.1f ns a packet above an empty program (± %.1f; the empty one takes %.1f), mean over the packets above\n",
		p.File, rep.NsPerPacket, rep.Spread, rep.NsEmpty)
	if rep.SampleEvery > 1 {
		fmt.Fprintf(e.stdout, "a sample: one rule in %d was looked at; --rules looks at more\n", rep.SampleEvery)
	}
	if len(rep.NotReached) > 0 {
		fmt.Fprintf(e.stdout, "no packet was found for %s: %s\n", plural(len(rep.NotReached), "rule"), abridged(rep.NotReached))
	}
	if rep.NotMeasured > 0 {
		fmt.Fprintf(e.stdout, "not measured: %s more; --rules measures them\n", plural(rep.NotMeasured, "rule"))
	}
}
