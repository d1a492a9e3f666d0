package commands

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/advice"
)

const benchAdviceLong = `Measure what levee doctor advises, of that what can be tried in a lab: generic XDP against
that of the driver, filters of tc against TCX, rules of netfilter, connection tracking, a packet
socket. ns a packet with what costs and without it, in turn, and what is gained, with 95 %
intervals. No setting of the machine is changed, and no interface but those of the lab.

levee doctor --measure runs it for what it has found. All of it takes about a minute and a half.
Exit status 1 means that an advice has no figure, or that the run was interrupted.`

const benchAdviceExample = `  sudo levee bench advice
  sudo levee bench advice --only netfilter --rules 500`

func newBenchAdvice(e *env) *cobra.Command {
	var o advice.Options
	cmd := newMeasurement(e, benchCommand{
		use: "advice", short: "What is gained by what doctor advises, tried in a lab",
		long: benchAdviceLong, example: benchAdviceExample,
		options: &o.Options.Options,
		rounds:  "rounds (default 8, quick 6, the fewest that give an interval)",
		window:  "length of a window (default 400ms, quick 150ms)",
		seed:    "seed of the flood", quick: shortWindows,
	}, func(*cobra.Command) error { return nil },
		func(ctx context.Context) (*advice.Report, error) { return advice.Run(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Only, "only", nil,
		"only these: "+strings.Join(advice.Names(), ", "))
	cmd.Flags().IntVar(&o.Rules, "rules", 0, "rules of netfilter (default 100)")
	return cmd
}
