package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench"
)

const benchLatencyLong = `Time round trips of UDP probes to an echo service while a flood of a fixed rate is dropped in front of it: by levee, by
nftables at netdev ingress, by iptables in raw PREROUTING and in INPUT, and by the application itself. Percentiles to 99.99
as far as there are probes enough, histograms, how many probes returned, how much of the flood found the ring full.

Probes are sent at times drawn beforehand, whether or not the ones before returned, and each counts from the time at which
it should have been sent; so a system that stands still shows. Eight minutes; --quick three. Exit status 1 means that a place
has no figure under a load, or that the run was interrupted: it prints what it has, marked as incomplete.`

const benchLatencyExample = `  sudo levee bench latency
  sudo levee bench latency --load 0,1M --rung levee,'iptables INPUT (one rule)' --html latency.html`

func newBenchLatency(e *env) *cobra.Command {
	var (
		o      bench.LatencyOptions
		loads  []string
		window string
		out    benchOutput
	)
	cmd := &cobra.Command{
		Use:     "latency",
		Short:   "Round trips beside a flood that is dropped, by the place where it is",
		Long:    benchLatencyLong,
		Example: benchLatencyExample,
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			quiet := slices.Contains(loads, "0")
			some, err := ratesFlag(cmd, "load", slices.DeleteFunc(loads, func(l string) bool { return l == "0" }))
			if err != nil {
				return err
			}
			if o.Loads = some; quiet {
				o.Loads = append(o.Loads, 0)
			}
			if cmd.Flags().Changed("probes") && !(o.Probes > 0) {
				return usagef(cmd, "--probes %g: a number above 0", o.Probes)
			}
			if err := errors.Join(roundsFlag(cmd, o.Rounds), durationFlag(cmd, "window", window, &o.Window)); err != nil {
				return err
			}
			o.Command = e.command()
			return measured(e, &out, func(ctx context.Context, progress func(string, int, int)) (*bench.LatencyReport, error) {
				o.Progress = progress
				return bench.Latency(ctx, o)
			})
		},
	}
	cmd.Flags().StringSliceVar(&o.Rungs, "rung", nil, "only these places: "+strings.Join(bench.LatencyNames(), ", "))
	cmd.Flags().StringSliceVar(&loads, "load", nil, "packets a second of the flood (default 0,100k,500k,1M,2M)")
	cmd.Flags().Float64Var(&o.Probes, "probes", 10_000, "probes a second")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 0, "rounds (default 6, the fewest that give an interval)")
	cmd.Flags().StringVar(&window, "window", "", "length of a window (default 2s, quick 400ms)")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of flood and probes")
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "short windows: a look, not a figure to quote")
	out.register(cmd)
	return cmd
}
