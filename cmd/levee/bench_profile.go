package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"levee/internal/bench/profile"
	"levee/internal/host/atomicfile"
)

const benchProfileLong = `Find out what the receiving core spends its time on while a flood meets a place to drop it: driver, eBPF program, helpers,
netfilter, kernel, user space, idle, other tasks, unknown; and the functions that take most. --flame writes a flame graph, one SVG that
opens offline: shares on hover, a click zooms. Samples are taken with perf_event_open, by CPU cycles where the machine counts
them and by a timer else; nothing needs to be installed.

The flood and its windows are those of bench ladder, and keep its rules. About half a minute. Exit status 1 means that no
window did.`

func newBenchProfile(e *env) *cobra.Command {
	var o profile.Options
	var window, policy, flame string
	var out benchOutput
	cmd := &cobra.Command{
		Use:     "profile",
		Short:   "What the receiving core does under a flood, with a flame graph",
		Long:    benchProfileLong,
		Example: "  sudo levee bench profile --rung levee --flame levee.svg\n  sudo levee bench profile --rung nft --html nft.html",
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := errors.Join(roundsFlag(cmd, o.Rounds), durationFlag(cmd, "window", window, &o.Window)); err != nil {
				return err
			}
			if cmd.Flags().Changed("frequency") && o.Frequency < 1 {
				return usagef(cmd, "--frequency %d: a number above 0", o.Frequency)
			}
			if policy != "" {
				src, err := e.readSource(policy)
				if err != nil {
					return err
				}
				o.Policy, o.PolicyName = src.text, src.title()
			}
			if err := out.check(cmd); err != nil {
				return err
			}
			if flame != "" {
				if err := isFile("flame", flame); err != nil {
					return err
				}
			}
			o.Command = e.command()
			ctx, stop := e.signals()
			defer stop()
			progress := e.timed()
			o.Progress = progress.step
			rep, err := profile.Run(ctx, o)
			progress.clear()
			if rep == nil {
				return err
			}
			if flame != "" {
				var b bytes.Buffer
				if flameErr := errors.Join(rep.Flame(&b), atomicfile.Write(flame, b.Bytes(), 0o644)); flameErr != nil {
					return flameErr
				}
			}
			if err := e.printBench(rep, err, &out); err != nil {
				return err
			}
			if len(rep.Shares) == 0 {
				return &exitError{code: exitNo, err: fmt.Errorf("no figure for %s: the report says why", rep.Rung)}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Rung, "rung", "levee", "the place, by its name in bench ladder or the beginning of it")
	cmd.Flags().StringVar(&policy, "policy", "", "a policy of your own for levee (default: the demo policy)")
	cmd.Flags().StringVar(&flame, "flame", "", "write a flame graph into this SVG file")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 0, "rounds (default 6, the fewest that give an interval)")
	cmd.Flags().StringVar(&window, "window", "", "length of a window (default 1s)")
	cmd.Flags().IntVar(&o.Frequency, "frequency", 0, "samples a second (default 997)")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the floods")
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "short windows: a look, not a figure to quote")
	out.register(cmd)
	return cmd
}
