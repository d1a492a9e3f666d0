package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/generators"
)

const benchGenLong = `Compare the paths of levee gen (live frames, AF_XDP, packet socket, UDP socket) with trafgen, masscan and tcpreplay, where
they are installed: packets a second as fast as each goes, how far each is off a requested rate, and how even the gaps are. One
lab, one receiver, interleaved rounds; the medians with their 95 % intervals.

What counts is taken at the device and by the receiver, not from what a generator says of itself. All rates and generators
take about seven minutes; choose with --only and --rates.`

const benchGenExample = `  sudo levee bench gen --quick
  sudo levee bench gen --only 'levee live,trafgen' --rates 1M,2M
  sudo levee bench gen --json > generators.json`

func newBenchGen(e *env) *cobra.Command {
	var o generators.Options
	var rates []string
	var window string
	var out benchOutput
	cmd := &cobra.Command{
		Use:     "gen",
		Short:   "Packet generators: rate, exactness and gaps, against trafgen, masscan and tcpreplay",
		Long:    benchGenLong,
		Example: benchGenExample,
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Rates, err = ratesFlag(cmd, "rates", rates); err != nil {
				return err
			}
			if err := errors.Join(roundsFlag(cmd, o.Rounds), durationFlag(cmd, "window", window, &o.Window)); err != nil {
				return err
			}
			if err := out.check(cmd); err != nil {
				return err
			}
			o.Command = e.command()
			ctx, stop := e.signals()
			defer stop()
			progress := e.timed()
			o.Steps = progress.step
			rep, err := generators.Run(ctx, o)
			progress.clear()
			if rep == nil {
				return err
			}
			return e.printBench(rep, err, &out)
		},
	}
	cmd.Flags().StringSliceVar(&o.Only, "only", nil, "only these: "+strings.Join(generators.Names(), ", "))
	cmd.Flags().StringSliceVar(&rates, "rates", nil, "requested packets a second: 1000, 50k, 2M (default 1k to 2M)")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 0, "rounds (default 6, the fewest that give an interval)")
	cmd.Flags().StringVar(&window, "window", "", "length of a window (default 1s)")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of what varies")
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "short windows and three rates: a look, not a figure to quote")
	out.register(cmd)
	return cmd
}
