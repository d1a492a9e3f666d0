package commands

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/detect"
	"levee/internal/cli"
)

const benchDetectLong = `Measure, in a lab, how a flood becomes a rule: the time from the first packet to
the drop in XDP, the share of the flood that is dropped two seconds after its start, the packets of
good clients that are lost, how soon the rules are gone after its end, the collateral that was
predicted against what was measured, and what the agent takes of processor and memory. Floods are
those that --flood lists, one or more of each kind that the agent tells apart. DNS reflection is
drawn by the seed; with --data a captured one comes, too.

The agent runs in the lab with a policy that takes everything and detects, or with --policy. Good
clients visit, look names up, ping, load up and down meanwhile; their packets are counted where
they leave and behind XDP. Each figure has its goal beside it. Exit status 1 means that a flood has
no figures, not that a goal was missed. A minute or two for most floods, as their rules stay for a
while.`

const benchDetectExample = `  sudo levee bench detect --html detect.html
  sudo levee bench detect --flood syn,udp
  sudo levee bench detect --json | jq '.floods[] | {flood, drop_seconds, missed}'`

func newBenchDetect(e *env) *cobra.Command {
	var o detect.Options
	var before, during, gone, rate, policy string
	cmd := newMeasurement(e, benchCommand{
		use:   "detect",
		short: "How soon a flood becomes a rule, and what that costs",
		long:  benchDetectLong, example: benchDetectExample,
		options: &o.Options, seed: "seed of the floods",
	}, func(cmd *cobra.Command) (err error) {
		err = errors.Join(cli.DurationFlag(cmd, "before", before, &o.Before),
			cli.DurationFlag(cmd, "during", during, &o.During),
			cli.DurationFlag(cmd, "gone", gone, &o.Gone))
		if err != nil {
			return err
		}
		if o.Rate, err = cli.ParseRate(rate); err != nil {
			return cli.Usagef(cmd, "--rate: %v", err)
		}
		if o.Self, err = e.demoSelf(); err != nil {
			return err
		}
		if o.Levee, err = findLevee(o.Self[0]); err != nil {
			return err
		}
		return e.policyFlag(policy, &o.Policy, new(string))
	}, func(ctx context.Context) (*detect.Report, error) { return detect.Run(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Floods, "flood", nil,
		"only these: "+strings.Join(detect.FloodNames(), ", "))
	cmd.Flags().StringVar(&o.Data, "data", "",
		"a `directory` with "+detect.CaptureName+", for the flood \"capture\"")
	cmd.Flags().StringVar(&policy, "policy", "",
		"a policy of your own, with detect statements and no set files")
	cmd.Flags().StringVar(&before, "before", "",
		"time with clients only, before each flood (default 20s)")
	cmd.Flags().StringVar(&during, "during", "",
		"time of each flood that does not change (default 10s)")
	cmd.Flags().StringVar(&gone, "gone", "",
		"how long to wait for the rules to go (default 90s)")
	cmd.Flags().StringVar(&rate, "rate", "1M",
		"packets a second of the floods, and of the line that the ramp fills")
	return cmd
}
