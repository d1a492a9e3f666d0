package commands

import (
	"context"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"levee/internal/bench/rules"
	"levee/internal/bench/workload"
	"levee/internal/cli"
)

const benchPlanLong = `Compare the ns a packet that the planner estimates (levee check
--explain-compile) with what is measured, for the same packets: of filter sets (--data), made
from their rules alike and in no order, as levee bench rules does; of policies (--policy), a
packet for each rule again and again, as levee cost does. The estimate is for the slots that
decided the packets, and for how fast the machine was read to be beside the rounds.

Without files, sets are drawn in the shapes of ClassBench, of 1,000 and 10,000 rules; --seeds
draws so many of each, and the report says what the fastest and the slowest of them take. A set
takes some 5 s, a policy some 0.3 s a rule.`

const benchPlanExample = `  sudo levee bench plan --data acl1_1k,fw1_1k,ipc1_1k --policy edge.levee
  sudo levee bench plan --seeds 20 --shape fw --sizes 1000`

func newBenchPlan(e *env) *cobra.Command {
	var o rules.EstimateOptions
	var data, policies []string
	cmd := newMeasurement(e, benchCommand{
		use: "plan", short: "What the planner estimates for a packet, and what it takes",
		long: benchPlanLong, example: benchPlanExample, options: &o.Options.Options.Options,
		rounds: "rounds of a set (default 7; 6 are the fewest that give an interval)",
		seed:   "seed of what is drawn, the first of several", quick: shortWindows,
	}, func(cmd *cobra.Command) error {
		if cmd.Flags().Changed("seeds") && o.Seeds < 1 {
			return cli.Usagef(cmd, "--seeds %d: at least one set is drawn", o.Seeds)
		}
		return e.estimated(&o, data, policies)
	}, func(ctx context.Context) (*rules.EstimateReport, error) { return rules.Estimates(ctx, o) })
	cmd.Flags().IntSliceVar(&o.Sizes, "sizes", nil, "numbers of rules (default 1000,10000)")
	cmd.Flags().StringSliceVar(&o.Shapes, "shape", nil, "acl, fw, ipc (default all)")
	cmd.Flags().IntVar(&o.Seeds, "seeds", 1, "sets of each shape and size, 1 to 100")
	cmd.Flags().StringSliceVar(&data, "data", nil, "filter sets of ClassBench instead")
	cmd.Flags().StringSliceVar(&policies, "policy", nil, "policies instead")
	return cmd
}

// estimated reads the files of a comparison.
func (e *env) estimated(o *rules.EstimateOptions, data, policies []string) error {
	for _, path := range data {
		var s rules.Named
		read := func(r io.Reader, name string) ([]workload.Rule, error) {
			list, _, err := workload.ReadClassBench(r, name)
			return list, err
		}
		err := readData(e, path, &s.Rules, &s.Name, read)
		if err != nil {
			return err
		}
		o.Sets = append(o.Sets, s)
	}
	for _, path := range policies {
		p, err := e.LoadPolicy(path)
		if err != nil {
			return err
		}
		o.Policies = append(o.Policies, rules.Policed{Name: filepath.Base(path), Policy: p})
	}
	return nil
}
