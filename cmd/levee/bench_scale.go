package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/bench/scale"
	"levee/internal/bench/workload"
	"levee/internal/lang/syntax"
)

const benchSetsLong = `Measure sets of 10 to 1,000,000 entries: levee's structures, the kernel's LPM trie and hash map; and, by packets a
second through a lab, levee, xdp-filter, nftables (hash, interval and concatenated sets) and ipset, where each can hold the
entries. Look-ups are timed inside the kernel, above an empty loop, for hits, misses and a mix, for entries that come by alike
and by Zipf's law; each structure must give the right answers or has no figure.

The tables are drawn with the distributions of Internet routing, or read with --data: one prefix a line, .gz or not. All
sizes of both families take an hour or more; choose with --sizes, --family, --entries, --only. What takes long to load is loaded
once and then switched on and off. Interrupted, the command prints what it has measured, says that it is incomplete, and ends
with status 1. veth has no DMA: ratios carry over to other machines, absolute packets a second do not.`

const benchSetsExample = `  sudo levee bench sets --sizes 1000,1000000 --family 4 --entries prefixes --skip-lab
  sudo levee bench sets --data full-view.txt.gz --sizes 10000 --html sets.html --json > sets.json`

const benchRulesLong = `Measure rule sets of 10 to 100,000 rules in the shapes of ClassBench (acl, fw, ipc): what a packet costs in levee's
compiled program above an empty one, over thousands of different packets in no order; time to compile and load, memory; and
packets a second through a lab of levee, nftables and iptables with the same rules.

The rules are drawn with ClassBench's distributions, or read with --data from a filter set. All sizes take 17 minutes with
--rounds 6 --window 500ms; choose with --sizes, --shape, --only. What takes long to load is loaded once and then switched on and off. Interrupted, the
command prints what it has measured, says that it is incomplete, and ends with status 1.`

const benchRulesExample = `  sudo levee bench rules --sizes 1000,10000 --skip-lab
  sudo levee bench rules --data acl1_10k --svg .`

// scaleFlags are what both have in common.
type scaleFlags struct {
	scale.Options
	window, data string
	out          benchOutput
}

func (f *scaleFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntSliceVar(&f.Sizes, "sizes", nil, "numbers of entries or rules (default the powers of ten)")
	flags.StringVar(&f.data, "data", "", "measure a file instead of what is drawn")
	flags.StringSliceVar(&f.Only, "only", nil, "only these, by their names in the report")
	flags.IntVar(&f.Options.Rounds, "rounds", 0, "rounds (default 7; 6 are the fewest that give an interval)")
	flags.StringVar(&f.window, "window", "", "length of a window of a flood (default 1s)")
	flags.Uint64Var(&f.Seed, "seed", 1, "seed of what is drawn")
	flags.BoolVar(&f.Quick, "quick", false, "short windows: a look, not a figure to quote")
	flags.BoolVar(&f.SkipLab, "skip-lab", false, "no floods: what is measured inside the kernel only")
	flags.BoolVar(&f.SkipLookups, "only-lab", false, "floods only")
	f.out.register(cmd)
	f.out.registerAgainst(cmd)
}

func newBenchSets(e *env) *cobra.Command {
	var f scaleFlags
	var o scale.SetOptions
	cmd := &cobra.Command{
		Use: "sets", Short: "What an entry more costs: sets of 10 to 1,000,000, against the kernel's, nft's and ipset's",
		Long: benchSetsLong, Example: benchSetsExample, Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, v := range o.Families {
				if v != "4" && v != "6" {
					return usagef(cmd, "--family %s: it is 4 or 6", v)
				}
			}
			for _, v := range o.Entries {
				if v != "prefixes" && v != "hosts" {
					return usagef(cmd, "--entries %s: it is prefixes or hosts", v)
				}
			}
			return e.benchScale(cmd, &f, func(ctx context.Context) (measurement, error) {
				if f.data != "" {
					err := e.readData(f.data, func(r io.Reader, name string) (err error) {
						o.DataName = name
						o.Data, err = workload.ReadPrefixes(r, name)
						return err
					})
					if err != nil {
						return nil, err
					}
				}
				o.Options = f.Options
				return reported(scale.Sets(ctx, o))
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringSliceVar(&o.Families, "family", nil, "4 or 6 (default both)")
	cmd.Flags().StringSliceVar(&o.Entries, "entries", nil, "prefixes as in Internet routing, or hosts: single addresses (default both)")
	return cmd
}

func newBenchRules(e *env) *cobra.Command {
	var f scaleFlags
	var o scale.RuleOptions
	cmd := &cobra.Command{
		Use: "rules", Short: "What a rule more costs: 10 to 100,000 rules, against nftables and iptables",
		Long: benchRulesLong, Example: benchRulesExample, Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.benchScale(cmd, &f, func(ctx context.Context) (measurement, error) {
				if f.data != "" {
					err := e.readData(f.data, func(r io.Reader, name string) (err error) {
						o.DataName = name
						o.Data, o.Left, err = workload.ReadClassBench(r, name)
						return err
					})
					if err != nil {
						return nil, err
					}
				}
				o.Options = f.Options
				return reported(scale.Rules(ctx, o))
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringSliceVar(&o.Shapes, "shape", nil, "acl, fw, ipc (default all)")
	return cmd
}

// readData opens a file for a reader that wants its name.
func (e *env) readData(path string, read func(io.Reader, string) error) error {
	in, err := e.open(path)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	defer in.Close()
	return read(in, syntax.Quoted(filepath.Base(path)))
}

// reported makes no report a nil one.
func reported[R interface {
	*scale.SetsReport | *scale.RulesReport
	measurement
}](rep R, err error) (measurement, error) {
	if rep == nil {
		return nil, err
	}
	return rep, err
}

// benchScale runs one of both and prints its report.
func (e *env) benchScale(cmd *cobra.Command, f *scaleFlags, run func(context.Context) (measurement, error)) error {
	if err := errors.Join(roundsFlag(cmd, f.Options.Rounds), durationFlag(cmd, "window", f.window, &f.Window)); err != nil {
		return err
	}
	if f.SkipLab && f.SkipLookups {
		return usagef(cmd, "--skip-lab and --only-lab leave nothing to measure")
	}
	if err := f.out.check(cmd); err != nil {
		return err
	}
	f.Command = e.command()
	ctx, stop := e.signals()
	defer stop()
	progress, start := e.progress(), e.now()
	f.Progress = func(p scale.Progress) {
		progress.printf("%d of %d: %s (%s, about %s left)", p.Case, p.Cases, p.Doing, e.now().Sub(start).Round(time.Second), p.Left.Round(time.Second))
	}
	rep, err := run(ctx)
	progress.clear()
	if rep == nil {
		return err
	}
	return e.printBench(rep, err, &f.out)
}
