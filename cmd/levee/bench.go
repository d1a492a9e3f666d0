package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/bench"
)

func newBench(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bench COMMAND",
		Short:   "Measure on this machine what levee's claims are made of",
		Long:    "Measurements in a lab that is made for them. A run that breaks one of its own rules says why, and gives no number.",
		Example: "  sudo levee bench ladder",
		Args:    cobra.ArbitraryArgs,
		RunE:    groupRun,
	}
	cmd.AddCommand(newBenchLadder(e), newBenchSets(e), newBenchRules(e), newBenchHash(e), newBenchRoute(e))
	return cmd
}

const benchLadderLong = `Measure how many packets a second the places to drop them take, with the same flood on the same path: an empty XDP
program, levee, xdp-filter, nftables at netdev ingress, iptables INPUT. Two minutes; the median of the rounds with its 95 %
interval, the ratios, and what the machine is. What is not installed, or could not be measured, says so.

veth has no DMA and no descriptors: ratios carry over to other machines, absolute figures do not. Exit status 1 means
that a place that is here has no figure.`

type benchFlags struct {
	policy, window string
	rungs          []string
	rounds         int
	seed           uint64
	quick, json    bool
}

func newBenchLadder(e *env) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:     "ladder",
		Short:   "Packets a second of the places to drop them, against each other",
		Long:    benchLadderLong,
		Example: "  sudo levee bench ladder\n  sudo levee bench ladder --json | jq '.rungs[] | {name, median_pps, interval}'",
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.benchLadder(cmd, &f)
		},
	}
	cmd.Flags().StringVar(&f.policy, "policy", "", "a policy of your own for levee (default: the demo policy)")
	cmd.Flags().StringSliceVar(&f.rungs, "rung", nil, "only these places, by their names in the report")
	cmd.Flags().IntVar(&f.rounds, "rounds", 0, "rounds (default 6, the fewest that give an interval)")
	cmd.Flags().StringVar(&f.window, "window", "", "length of a window (default 1s)")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the floods")
	cmd.Flags().BoolVar(&f.quick, "quick", false, "short windows: a look, not a figure to quote")
	jsonFlag(cmd, &f.json)
	return cmd
}

func (e *env) benchLadder(cmd *cobra.Command, f *benchFlags) error {
	o := bench.Options{
		Rungs: f.rungs, Rounds: f.rounds, Quick: f.quick, Seed: f.seed,
		Command: "levee " + strings.Join(e.args, " "),
	}
	var err error
	if f.window != "" {
		if o.Window, err = parseDuration(f.window); err != nil {
			return usagef(cmd, "--window: %v", err)
		}
	}
	if f.policy != "" {
		src, err := e.readSource(f.policy)
		if err != nil {
			return err
		}
		o.Policy, o.PolicyName = src.text, src.title()
	}
	if err := e.privileged(); err != nil {
		return err
	}
	ctx, stop := e.signals()
	defer stop()
	progress, start := e.progress(), e.now()
	o.Progress = func(doing string, done, total int) {
		progress.printf("%d of %d: %s (%s)", done+1, total, doing, e.now().Sub(start).Round(time.Second))
	}
	rep, err := bench.Ladder(ctx, o)
	progress.clear()
	if err != nil {
		return err
	}
	if f.json {
		err = e.printJSON(rep)
	} else {
		err = rep.Text(e.stdout)
	}
	if err != nil && e.stdout.err == nil {
		return err
	}
	var none []string
	for _, r := range rep.Rungs {
		if r.MedianPPS == nil && r.Missing == "" {
			none = append(none, r.Name)
		}
	}
	if len(none) > 0 {
		return &exitError{code: exitNo, err: fmt.Errorf("no figure for %s: the report says why", strings.Join(none, ", "))}
	}
	return nil
}
