package main

import (
	"errors"
	"fmt"
	"slices"
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
	cmd.AddCommand(newBenchLadder(e), newBenchSets(e), newBenchRules(e), newBenchMix(e), newBenchLatency(e), newBenchProfile(e),
		newBenchRoute(e), newBenchHash(e), newBenchService(e), newBenchGen(e), newBenchCompare(e))
	return cmd
}

const benchLadderLong = `Measure how many packets a second each place to drop them takes, with the same flood on the same path, for IPv4 and
IPv6: an application that receives by recvmmsg (also with conntrack in the path, and with NOTRACK), an eBPF filter on its
socket, iptables INPUT and raw PREROUTING, nftables at netdev ingress, tc ingress, XDP in generic and in native mode; and the
filters that have the rules of the demo policy: levee, xdp-filter, nftables, iptables. Packets a second with the 95 %
interval, ns and cycles a packet, the share of the core, what reached the application, and what the machine is. What is not
installed, or could not be measured, says so. Under six minutes; --quick under 90 seconds.

Ratios compare the mean ns of the least third of each place's rounds, which were least disturbed, and the medians stand beside
them. Places whose intervals overlap share their place in the order ("5=").

veth has no DMA and no descriptors: ratios carry over to other machines, absolute figures do not. Exit status 1 means
that a place that is here has no figure, or that the run was interrupted: it prints what it has, marked as incomplete.`

const benchLadderExample = `  sudo levee bench ladder
  sudo levee bench ladder --quick --family 6
  sudo levee bench ladder --html ladder.html --against published
  sudo levee bench ladder --json | jq '.rungs[] | {name, median_pps, interval, by_family}'`

// What a run takes at most, as the help says; rounds are not tried again after it.
const (
	ladderBudget      = 340 * time.Second
	ladderQuickBudget = 85 * time.Second
)

type benchFlags struct {
	policy, window           string
	rungs, families, traffic []string
	rounds                   int
	seed                     uint64
	quick                    bool
	out                      benchOutput
}

func newBenchLadder(e *env) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:     "ladder",
		Short:   "Packets a second of the places to drop them, against each other",
		Long:    benchLadderLong,
		Example: benchLadderExample,
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.benchLadder(cmd, &f)
		},
	}
	cmd.Flags().StringVar(&f.policy, "policy", "", "a policy of your own for levee (default: the demo policy)")
	cmd.Flags().StringSliceVar(&f.rungs, "rung", nil, "only these places, by their names in the report")
	cmd.Flags().StringSliceVar(&f.families, "family", nil, "4 or 6 (default both)")
	cmd.Flags().StringSliceVar(&f.traffic, "traffic", nil, "floods of the mix: udp, syn, bogon, ack (default udp; the others are for the filters alone)")
	cmd.Flags().IntVar(&f.rounds, "rounds", 0, "rounds (default 16, quick 6, the fewest that give an interval)")
	cmd.Flags().StringVar(&f.window, "window", "", "length of a window (default 400ms, quick 150ms)")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the floods")
	cmd.Flags().BoolVar(&f.quick, "quick", false, "short windows: a look, not a figure to quote")
	f.out.register(cmd)
	f.out.registerAgainst(cmd)
	return cmd
}

// options turns the flags into those of a ladder.
func (f *benchFlags) options(cmd *cobra.Command) (bench.Options, error) {
	o := bench.Options{Rungs: f.rungs, Traffic: f.traffic, Rounds: f.rounds, Quick: f.quick, Seed: f.seed}
	for _, v := range f.families {
		family, ok := map[string]string{"4": bench.IPv4, "6": bench.IPv6}[v]
		if !ok {
			return o, usagef(cmd, "--family %s: it is 4 or 6", v)
		}
		o.Families = append(o.Families, family)
	}
	for _, t := range f.traffic {
		if !slices.Contains(bench.TrafficNames, t) {
			return o, usagef(cmd, "--traffic %s: it is one or more of %s", t, strings.Join(bench.TrafficNames, ", "))
		}
	}
	if err := errors.Join(roundsFlag(cmd, f.rounds), durationFlag(cmd, "window", f.window, &o.Window)); err != nil {
		return o, err
	}
	if f.window == "" && f.rounds == 0 {
		o.Budget = ladderBudget
		if f.quick {
			o.Budget = ladderQuickBudget
		}
	}
	return o, nil
}

func (e *env) benchLadder(cmd *cobra.Command, f *benchFlags) error {
	o, err := f.options(cmd)
	if err != nil {
		return err
	}
	o.Command = e.command()
	if f.policy != "" {
		src, err := e.readSource(f.policy)
		if err != nil {
			return err
		}
		o.Policy, o.PolicyName = src.text, src.title()
	}
	if err := f.out.check(cmd); err != nil {
		return err
	}
	ctx, stop := e.signals()
	defer stop()
	progress, start := e.progress(), e.now()
	o.Progress = func(doing string, done, total int) {
		progress.printf("%d of %d: %s%s", min(done+1, total), total, doing, timeLeft(e.now().Sub(start), done, total))
	}
	rep, err := bench.Ladder(ctx, o)
	progress.clear()
	if rep == nil {
		return err
	}
	interrupted := err
	if err := e.printBench(rep, nil, &f.out); err != nil {
		return err
	}
	if interrupted != nil {
		return interrupted
	}
	if none := rep.Lacking(); len(none) > 0 {
		return &exitError{code: exitNo, err: fmt.Errorf("no figure for %s: the report says why", strings.Join(none, ", "))}
	}
	return nil
}

// timeLeft extrapolates the time of what is done to what is not.
func timeLeft(elapsed time.Duration, done, total int) string {
	if done == 0 {
		return ""
	}
	left := elapsed / time.Duration(done) * time.Duration(total-done)
	return fmt.Sprintf(" (%s, %s left)", elapsed.Round(time.Second), left.Round(time.Second))
}
