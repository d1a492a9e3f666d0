package commands

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/latency"
	"levee/internal/cli"
)

const benchLatencyLong = `Time round trips of UDP probes to an echo service while a flood of a
fixed rate is dropped in front of it: by levee, by nftables at netdev ingress, by iptables in
raw PREROUTING and in INPUT, and by the application itself. Percentiles to 99.99 as far as there
are probes enough, histograms, how many probes returned, how much of the flood found the ring
full.

With --rules each place has so many rules, of the shape fw of ClassBench, of which the last one
drops the flood and none before matches: levee, nftables at netdev ingress and in a table of family
ip, iptables in raw PREROUTING, and the application without rules. Probes meet all of them.

Probes are sent at times drawn beforehand, whether or not the ones before returned, and each
counts from the time at which it should have been sent; so a system that stands still shows.
Eight minutes; --quick three. Exit status 1 means that a place has no figure under a load, or
that the run was interrupted: it prints what it has, marked as incomplete.`

const benchLatencyExample = `  sudo levee bench latency
  sudo levee bench latency --load 0,1M --rung levee,'iptables INPUT (one rule)' --html latency.html
  sudo levee bench latency --rules 3000 --load 0,100k`

func newBenchLatency(e *env) *cobra.Command {
	var o latency.Options
	var loads []string
	cmd := newMeasurement(e, benchCommand{
		use:   "latency",
		short: "Round trips beside a flood that is dropped, by the place where it is",
		long:  benchLatencyLong, example: benchLatencyExample,
		options: &o.Options.Options, wire: &o.Wire,
		rounds: "rounds (default 6, the fewest that give an interval)",
		window: "length of a window (default 2s, quick 400ms)",
		seed:   "seed of flood and probes", quick: shortWindows,
	}, func(cmd *cobra.Command) (err error) {
		quiet := slices.Contains(loads, "0")
		loads = slices.DeleteFunc(loads, func(l string) bool { return l == "0" })
		if o.Loads, err = numbersFlag(cmd, "load", loads, cli.ParseRate); err != nil {
			return err
		}
		if quiet {
			o.Loads = append(o.Loads, 0)
		}
		if cmd.Flags().Changed("rules") && o.Rules < 1 {
			return cli.Usagef(cmd, "--rules %d: a number above 0", o.Rules)
		}
		if cmd.Flags().Changed("probes") && !(o.Probes > 0) {
			return cli.Usagef(cmd, "--probes %g: a number above 0", o.Probes)
		}
		return nil
	}, func(ctx context.Context) (*latency.Report, error) { return latency.Run(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Rungs, "rung", nil,
		"only these places: "+strings.Join(latency.Names(), ", ")+"; with --rules: "+
			strings.Join(latency.NamesBehind(), ", "))
	cmd.Flags().StringSliceVar(&loads, "load", nil,
		"packets a second of the flood (default 0,100k,500k,1M,2M)")
	cmd.Flags().IntVar(&o.Rules, "rules", 0,
		"rules at each place, to 10000; none but the last matches (default the one that drops)")
	cmd.Flags().Float64Var(&o.Probes, "probes", 10_000, "probes a second")
	return cmd
}
