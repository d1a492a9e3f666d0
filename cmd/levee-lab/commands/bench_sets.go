package commands

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"levee/internal/bench"
	"levee/internal/bench/load"
	"levee/internal/bench/rules"
	"levee/internal/bench/sets"
	"levee/internal/bench/workload"
	"levee/internal/cli"
)

const benchSetsLong = `Measure sets of 10 to 1,000,000 entries: levee's structures, the kernel's
LPM trie and hash map; and, by packets a second through a lab, levee, xdp-filter, nftables
(hash, interval and concatenated sets) and ipset, where each can hold the entries. Look-ups are
timed inside the kernel, above an empty loop, for hits, misses and a mix, for entries that come
by alike and by Zipf's law; each structure must give the right answers or has no figure.

The tables are drawn with the distributions of Internet routing, or read with --data: one prefix
a line, .gz or not. All sizes of both families take an hour or more; choose with --sizes,
--family, --entries, --only. What takes long to load is loaded once and then switched on and
off. Interrupted, the command prints what it has measured, says that it is incomplete, and ends
with status 1. veth has no DMA: ratios carry over to other machines, absolute packets a second
do not.`

const benchSetsExample = `  sudo levee bench sets --sizes 1000,1000000 --family 4 --entries prefixes --skip-lab
  sudo levee bench sets --data full-view.txt.gz --sizes 10000 --html sets.html --json > sets.json`

const benchRulesLong = `Measure rule sets of 10 to 100,000 rules in the shapes of ClassBench
(acl, fw, ipc): what a packet costs in levee's compiled program above an empty one, over
thousands of different packets in no order; time to compile and load, memory; and packets a
second through a lab of levee, nftables and iptables with the same rules.

The rules are drawn with ClassBench's distributions, or read with --data from a filter set. All
sizes take 17 minutes with --rounds 6 --window 500ms; choose with --sizes, --shape, --only. What
takes long to load is loaded once and then switched on and off. Interrupted, the command prints
what it has measured, says that it is incomplete, and ends with status 1.

--interpreted has the rules one by one in an eBPF program stand beside the others in the lab, once
by the kernel's JIT and once without, where the kernel has an interpreter; levee's own programs
cannot be interpreted. The switch (net.core.bpf_jit_enable) is the machine's: it is off for the
moments in which such a program is loaded, and what others load then is interpreted, too. If a
command is killed (SIGKILL) in such a moment, the next measurement or "levee lab list" turns it on.`

const benchRulesExample = `  sudo levee bench rules --sizes 1000,10000 --skip-lab
  sudo levee bench rules --data acl1_10k --svg .
  sudo levee bench rules --sizes 10,100,1000 --shape fw --interpreted --html jit.html`

// newGrowing makes the command of a measurement of sizes; prepare is told what --data names.
func newGrowing[R bench.Report](e *env, c benchCommand, o *load.Options,
	prepare func(cmd *cobra.Command, data string) error,
	run func(context.Context) (R, error)) *cobra.Command {
	c.options, c.against, c.wire = &o.Options, true, &o.Wire
	c.rounds = "rounds (default 7; 6 are the fewest that give an interval)"
	c.window = "length of a window of a flood (default 1s)"
	c.seed, c.quick = "seed of what is drawn", shortWindows
	var data string
	cmd := newMeasurement(e, c, func(cmd *cobra.Command) error {
		if o.SkipLab && o.SkipLookups {
			return cli.Usagef(cmd, "--skip-lab and --only-lab leave nothing to measure")
		}
		return prepare(cmd, data)
	}, run)
	cmd.Flags().IntSliceVar(&o.Sizes, "sizes", nil,
		"numbers of entries or rules (default the powers of ten)")
	cmd.Flags().StringSliceVar(&o.Only, "only", nil, "only these, by their names in the report")
	cmd.Flags().BoolVar(&o.SkipLab, "skip-lab", false,
		"no floods: what is measured inside the kernel only")
	cmd.Flags().BoolVar(&o.SkipLookups, "only-lab", false, "floods only")
	cmd.Flags().StringVar(&data, "data", "", dataHelp)
	return cmd
}

// dataHelp is that of --data.
const dataHelp = "measure a file instead of what is drawn"

func newBenchSets(e *env) *cobra.Command {
	var o sets.Options
	cmd := newGrowing(e, benchCommand{
		use: "sets", short: "What an entry more costs: sets of 10 to 1,000,000, against the " +
			"kernel's, nft's and ipset's",
		long: benchSetsLong, example: benchSetsExample,
	}, &o.Options, func(cmd *cobra.Command, data string) error {
		if err := oneOf(cmd, "family", o.Families, "4", "6"); err != nil {
			return err
		}
		if err := oneOf(cmd, "entries", o.Entries, "prefixes", "hosts"); err != nil {
			return err
		}
		return readData(e, data, &o.Data, &o.DataName, workload.ReadPrefixes)
	}, func(ctx context.Context) (*sets.Report, error) { return sets.Run(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Families, "family", nil, "4 or 6 (default both)")
	cmd.Flags().StringSliceVar(&o.Entries, "entries", nil,
		"prefixes as in Internet routing, or hosts: single addresses (default both)")
	return cmd
}

func newBenchRules(e *env) *cobra.Command {
	var o rules.Options
	cmd := newGrowing(e, benchCommand{
		use: "rules", short: "What a rule more costs: 10 to 100,000 rules, against nftables and " +
			"iptables",
		long: benchRulesLong, example: benchRulesExample,
	}, &o.Options, func(_ *cobra.Command, data string) error {
		return readData(e, data, &o.Data, &o.DataName,
			func(r io.Reader, name string) (list []workload.Rule, err error) {
				list, o.Left, err = workload.ReadClassBench(r, name)
				return list, err
			})
	}, func(ctx context.Context) (*rules.Report, error) { return rules.Run(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Shapes, "shape", nil, "acl, fw, ipc (default all)")
	cmd.Flags().BoolVar(&o.Interpreted, "interpreted", false,
		"also the rules one by one in eBPF, with the kernel's JIT and without")
	return cmd
}
