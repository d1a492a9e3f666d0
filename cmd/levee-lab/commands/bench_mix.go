package commands

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/mix"
	"levee/internal/cli"
)

const benchMixLong = `Measure how many packets a second a place takes, by the share of them that
it drops while the rest reaches an application; and how many it takes of what is offered, when
it drops all. levee, nftables at netdev ingress, iptables in raw PREROUTING and in INPUT, one
rule each, with the same flood on the same path.

Four minutes; --quick one. Exit status 1 means that a place has no figure, or that the run was
interrupted: it prints what it has, marked as incomplete.`

const benchMixExample = `  sudo levee bench mix
  sudo levee bench mix --share 0,50,100 --rate 1M,4M --svg plots`

func newBenchMix(e *env) *cobra.Command {
	var o mix.Options
	var rates, shares []string
	cmd := newMeasurement(e, benchCommand{
		use:   "mix",
		short: "Packets a second by the share that is dropped, and by how many are offered",
		long:  benchMixLong, example: benchMixExample,
		options: &o.Options.Options, wire: &o.Wire,
		rounds: "rounds (default 6, the fewest that give an interval)",
		window: "length of a window (default 400ms, quick 100ms)",
		seed:   "seed of the floods", quick: shortWindows,
	}, func(cmd *cobra.Command) (err error) {
		if o.Rates, err = numbersFlag(cmd, "rate", rates, cli.ParseRate); err != nil {
			return err
		}
		o.Shares, err = numbersFlag(cmd, "share", shares, cli.ParsePercent)
		return err
	}, func(ctx context.Context) (*mix.Report, error) { return mix.Run(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Rungs, "rung", nil,
		"only these places: "+strings.Join(mix.Names(), ", "))
	cmd.Flags().StringSliceVar(&shares, "share", nil,
		"percent of the packets that are dropped, in steps of 5 (default 0,25,50,75,90,95,100)")
	cmd.Flags().StringSliceVar(&rates, "rate", nil,
		"packets a second offered (default 250k,500k,1M,2M,4M)")
	return cmd
}
