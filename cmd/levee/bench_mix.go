package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench"
)

const benchMixLong = `Measure how many packets a second a place takes, by the share of them that it drops while the rest reaches an application;
and how many it takes of what is offered, when it drops all. levee, nftables at netdev ingress, iptables in raw PREROUTING and
in INPUT, one rule each, with the same flood on the same path.

Four minutes; --quick one. Exit status 1 means that a place has no figure, or that the run was interrupted: it prints what it
has, marked as incomplete.`

const benchMixExample = `  sudo levee bench mix
  sudo levee bench mix --share 0,50,100 --rate 1M,4M --svg plots`

func newBenchMix(e *env) *cobra.Command {
	var (
		o      bench.MixOptions
		rates  []string
		shares []string
		window string
		out    benchOutput
	)
	cmd := &cobra.Command{
		Use:     "mix",
		Short:   "Packets a second by the share that is dropped, and by how many are offered",
		Long:    benchMixLong,
		Example: benchMixExample,
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			var err error
			if o.Rates, err = ratesFlag(cmd, "rate", rates); err != nil {
				return err
			}
			if o.Shares, err = percentsFlag(cmd, "share", shares); err != nil {
				return err
			}
			if err := errors.Join(roundsFlag(cmd, o.Rounds), durationFlag(cmd, "window", window, &o.Window)); err != nil {
				return err
			}
			o.Command = e.command()
			return measured(e, &out, func(ctx context.Context, progress func(string, int, int)) (*bench.MixReport, error) {
				o.Progress = progress
				return bench.Mix(ctx, o)
			})
		},
	}
	cmd.Flags().StringSliceVar(&o.Rungs, "rung", nil, "only these places: "+strings.Join(bench.MixNames(), ", "))
	cmd.Flags().StringSliceVar(&shares, "share", nil, "percent of the packets that are dropped, in steps of 5 (default 0,25,50,75,90,95,100)")
	cmd.Flags().StringSliceVar(&rates, "rate", nil, "packets a second offered (default 250k,500k,1M,2M,4M)")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 0, "rounds (default 6, the fewest that give an interval)")
	cmd.Flags().StringVar(&window, "window", "", "length of a window (default 400ms, quick 100ms)")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the floods")
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "short windows: a look, not a figure to quote")
	out.register(cmd)
	return cmd
}
