package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/cost"
	"levee/internal/lang/policy"
)

const costLong = `Measure what a packet costs in the compiled program, in nanoseconds above an
empty program of the same kind, and by the rule that it reaches. Packets are made from the
rules; the kernel runs both programs on them in turns (A B B A), and the difference is reported:
the median of the rounds, and half the distance between their quartiles as spread.

Each packet is repeated, so tables that it needs are in the cache and its branches are
predicted: the figures are lower bounds, and a flood of many sources costs more, most where sets
are larger than the cache. Some 0.3 s a rule, and a second more without the right to make network
namespaces; at most --rules of them are measured: the first that packets reach or, of more than
1,000 rules, a sample that is spread evenly over the policy, which the output says.`

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
		Args:    cli.WantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.repeat < 1 || f.repeat > 10_000_000:
				return cli.Usagef(cmd, "--repeat %d: use 1 to 10,000,000", f.repeat)
			case f.rules < 1:
				return cli.Usagef(cmd, "--rules %d: at least one rule is measured", f.rules)
			}
			return e.cost(args[0], &f)
		},
	}
	cmd.Flags().IntVar(&f.repeat, "repeat", 100_000, "packets in one run of the kernel")
	cmd.Flags().IntVar(&f.rules, "rules", 50, "measure at most so many rules")
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

func (e *env) cost(file string, f *costFlags) error {
	if err := e.Privileged(); err != nil {
		return err
	}
	p, err := e.LoadPolicy(file)
	if err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	shown := e.costProgress()
	rep, err := cost.Measure(ctx, p, cost.Options{Repeat: f.repeat, Rules: f.rules,
		Progress: shown.report})
	shown.Clear()
	if err != nil {
		return err
	}
	out := rep.Told(p, f.repeat)
	if f.json {
		return e.PrintJSON(out)
	}
	e.printCost(p, out)
	return nil
}

// costProgress shows how far a measurement is, and how long the rest may take.
type costProgress struct {
	*cli.Progress
	now       func() time.Time
	measuring bool
	begin     time.Time // of what is being done
}

func (e *env) costProgress() *costProgress {
	return &costProgress{Progress: e.Progress(), now: e.Now, begin: e.Now()}
}

func (c *costProgress) report(p cost.Progress) {
	if measuring := p.Measuring != ""; measuring && !c.measuring {
		c.measuring, c.begin = true, c.now()
	}
	rest := left(c.now().Sub(c.begin), p.Done, p.All)
	if p.Measuring == "" {
		c.Printf("finding packets: rule %d of %d%s", p.Done, p.All, rest)
	} else {
		c.Printf("measuring %s, %d of %d%s", p.Measuring, p.Done+1, p.All, rest)
	}
}

// left says about how long the rest takes when done of all took so long; nothing at the beginning.
func left(took time.Duration, done, all int) string {
	if done == 0 || took < time.Second {
		return ""
	}
	rest := time.Duration(float64(took) / float64(done) * float64(all-done))
	return fmt.Sprintf(", about %v left", rest.Round(time.Second))
}

func (e *env) printCost(p *policy.Policy, rep *cost.Told) {
	t := cli.NewTable("NS ± VERDICT RULE LABEL MATCH", ">", ">", "<", "<", "<", "<")
	for _, r := range rep.Rules {
		t.Row(fmt.Sprintf("%.1f", r.NsPerPacket), fmt.Sprintf("%.1f", r.Spread), r.Verdict, r.Rule,
			r.Label, r.Text)
	}
	t.Print(e.Stdout, "")
	fmt.Fprintf(e.Stdout, "\n%s: %.1f ns a packet above an empty program (± %.1f; the empty one "+
		"takes %.1f), mean over the packets above\n",
		p.File, rep.NsPerPacket, rep.Spread, rep.NsEmpty)
	if rep.SampleEvery > 1 {
		fmt.Fprintf(e.Stdout, "a sample: one rule in %d was looked at; --rules looks at more\n",
			rep.SampleEvery)
	}
	if len(rep.NotReached) > 0 {
		fmt.Fprintf(e.Stdout, "no packet was found for %s: %s\n",
			cli.Plural(len(rep.NotReached), "rule"), cli.Abridged(rep.NotReached))
	}
	if rep.NotMeasured > 0 {
		fmt.Fprintf(e.Stdout, "not measured: %s more; --rules measures them\n",
			cli.Plural(rep.NotMeasured, "rule"))
	}
}
