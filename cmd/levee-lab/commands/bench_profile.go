package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"levee/internal/bench/profile"
	"levee/internal/cli"
	"levee/internal/host/atomicfile"
	"levee/internal/report"
)

const benchProfileLong = `Find out what the receiving core spends its time on while a flood
meets a place to drop it: driver, eBPF program, helpers, netfilter, kernel, user space, idle,
other tasks, unknown; and the functions that take most. --flame writes a flame graph, one SVG
that opens offline: shares on hover, a click zooms. Samples are taken with perf_event_open, by
CPU cycles where the machine counts them and by a timer else; nothing needs to be installed.

With --before, a flame graph that an earlier run wrote, its colours show what has changed since:
frames that take more of the time, and less. The titles have both shares.

With --rate the same is told of each offered rate: which share of the core each takes, and what is
left of it. The flood is of IPv4 then.

The flood and its windows are those of bench ladder, and keep its rules. About half a minute.
Exit status 1 means that no window did.`

func newBenchProfile(e *env) *cobra.Command {
	var o profile.Options
	var policy, flame, before string
	var was *report.Flame
	var rates []string
	cmd := newMeasurement(e, benchCommand{
		use:   "profile",
		short: "What the receiving core does under a flood, with a flame graph",
		long:  benchProfileLong, example: "  sudo levee bench profile --rung levee --flame " +
			"levee.svg\n  sudo levee bench profile --rung levee --policy new.levee " +
			"--before levee.svg --flame new.svg\n" +
			"  sudo levee bench profile --rung nft --html nft.html\n" +
			"  sudo levee bench profile --rung levee --rate 250k,500k,1M,2M,4M",
		options: &o.Options,
		rounds:  "rounds (default 6, the fewest that give an interval)",
		window:  "length of a window (default 1s)",
		seed:    "seed of the floods", quick: shortWindows,
	}, func(cmd *cobra.Command) error {
		if cmd.Flags().Changed("frequency") && o.Frequency < 1 {
			return cli.Usagef(cmd, "--frequency %d: a number above 0", o.Frequency)
		}
		var err error
		if o.Rates, err = numbersFlag(cmd, "rate", rates, cli.ParseRate); err != nil {
			return err
		}
		if flame != "" {
			if err := isFile("flame", flame); err != nil {
				return err
			}
		}
		if before != "" {
			if was, err = e.flameBefore(cmd, flame, before); err != nil {
				return err
			}
		}
		return e.policyFlag(policy, &o.Policy, &o.PolicyName)
	}, func(ctx context.Context) (*profile.Report, error) {
		r, err := profile.Run(ctx, o)
		if r != nil && flame != "" {
			err = errors.Join(err, atomicfile.Write(flame, r.Flame(was), 0o644))
		}
		return r, err
	})
	cmd.Flags().StringVar(&o.Rung, "rung", "levee",
		"the place, by its name in bench ladder or the beginning of it")
	cmd.Flags().StringVar(&policy, "policy", "",
		"a policy of your own for levee (default: the demo policy)")
	cmd.Flags().StringVar(&flame, "flame", "", "write a flame graph into this SVG file")
	cmd.Flags().StringVar(&before, "before", "",
		"colour the flame graph by what has changed since the one in this SVG file")
	cmd.Flags().StringSliceVar(&rates, "rate", nil,
		"packets a second offered, one or more (default as many as there can be)")
	cmd.Flags().IntVar(&o.Frequency, "frequency", 0, "samples a second (default 997)")
	return cmd
}

// flameBefore reads the graph of an earlier run.
func (e *env) flameBefore(cmd *cobra.Command, flame, before string) (*report.Flame, error) {
	if flame == "" {
		return nil, cli.Usagef(cmd, "--before colours a flame graph: name its file by --flame")
	}
	src, err := e.ReadSource(before)
	if err != nil {
		return nil, fmt.Errorf("--before: %w", err)
	}
	was, err := report.ReadFlame(src.Text)
	if err != nil {
		return nil, fmt.Errorf("--before: %s: %w: name a file that --flame wrote", before, err)
	}
	return was, nil
}
