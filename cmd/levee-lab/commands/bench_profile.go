package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
Exit status 1 means that no window did.

With --dev the cores of this machine are profiled while an interface is in service: nothing is sent,
attached or changed. Told beside the shares are the packets that arrive, what the program of
levee's policy takes for each, and what each core does. It takes ten windows of a second. With
--marks it goes from a mark to a mark: it begins with a line on standard input and ends with the
next one, or with the end of the lines, after ten minutes at most. The lines are the marks' names.`

const benchProfileExample = `  sudo levee bench profile --rung levee --flame levee.svg
  sudo levee bench profile --rung levee --policy new.levee --before levee.svg --flame new.svg
  sudo levee bench profile --rung nft --html nft.html
  sudo levee bench profile --rung levee --rate 250k,500k,1M,2M,4M
  sudo levee bench profile --dev eth0 --flame service.svg
  (echo quiet; sleep 30; echo over) | sudo levee bench profile --dev eth0 --marks`

func newBenchProfile(e *env) *cobra.Command {
	var o profile.Options
	var live liveFlags
	var policy, flame, before string
	var was *report.Flame
	var rates []string
	cmd := newMeasurement(e, benchCommand{
		use:   "profile",
		short: "What the receiving core does under a flood, or cores in service; a flame graph",
		long:  benchProfileLong, example: benchProfileExample,
		options: &o.Options,
		rounds: "rounds (default 6, the fewest that give an interval; with --dev windows, " +
			"default 10)",
		window: "length of a window (default 1s)",
		seed:   "seed of the floods", quick: shortWindows,
	}, func(cmd *cobra.Command) error {
		if cmd.Flags().Changed("frequency") && o.Frequency < 1 {
			return cli.Usagef(cmd, "--frequency %d: a number above 0", o.Frequency)
		}
		if err := live.check(cmd); err != nil {
			return err
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
		r, err := live.run(ctx, e, &o)
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
		"colour the flame graph by what has changed since the one in this SVG `file`")
	cmd.Flags().StringSliceVar(&rates, "rate", nil,
		"packets a second offered, one or more (default as many as there can be)")
	cmd.Flags().IntVar(&o.Frequency, "frequency", 0, "samples a second (default 997)")
	cmd.Flags().StringVar(&live.dev, "dev", "",
		"profile the cores while this interface is in service, without a lab")
	cmd.Flags().StringVar(&live.cpu, "cpu", "",
		"with --dev, the `cores` to look at, as 0-3 or 0,2 (default all)")
	cmd.Flags().BoolVar(&live.marks, "marks", false,
		"with --dev, from a line on standard input to the next one")
	return cmd
}

// liveFlags are those of a profile of an interface in service.
type liveFlags struct {
	dev, cpu string
	marks    bool
	cores    []int
}

// check refuses flags of the lab beside --dev, and those of --dev without it.
func (f *liveFlags) check(cmd *cobra.Command) (err error) {
	given := cmd.Flags().Changed
	if !given("dev") {
		for _, name := range []string{"marks", "cpu"} {
			if given(name) {
				return cli.Usagef(cmd, "--%s is of an interface in service: name it by --dev", name)
			}
		}
		return nil
	}
	for _, name := range []string{"rung", "policy", "rate", "seed"} {
		if given(name) {
			return cli.Usagef(cmd, "--%s is of a flood in the lab: leave it or --dev out", name)
		}
	}
	if f.dev == "" {
		return cli.Usagef(cmd, "--dev: name an interface")
	}
	if f.marks && given("rounds") {
		return cli.Usagef(cmd, "--rounds: with --marks the marks say how long; leave one out")
	}
	if given("cpu") {
		if f.cores, err = parseCores(f.cpu); err != nil || slices.Contains(f.cores, -1) {
			return cli.Usagef(cmd, "--cpu %s: cores as 0-3 or 0,2", f.cpu)
		}
	}
	return nil
}

// run profiles an interface in service, or else a rung in the lab.
func (f *liveFlags) run(ctx context.Context, e *env, o *profile.Options) (*profile.Report, error) {
	if f.dev == "" {
		return profile.Run(ctx, *o)
	}
	of := profile.LiveOptions{Options: o.Options, Dev: f.dev, CPUs: f.cores,
		Frequency: o.Frequency}
	if f.marks {
		of.Marks = e.Stdin
	}
	return profile.RunLive(ctx, of)
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
