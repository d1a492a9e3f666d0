package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"levee/internal/bench"
)

const benchLadderLong = `Measure how many packets a second one core drops, at different places and by different tools, in a lab of its own: an
empty XDP program, levee with the demo policy, xdp-filter with the part of these rules that it can express, and the same
rules in nftables at netdev ingress and in iptables INPUT. Tools that are not installed are left out, in one line.

All take the same path and the same floods; rounds go through them forwards and backwards in turn. A window in which
packets do not balance, time was stolen, or the path was not as it should be gives the reason instead of a number. Where the
generator was the limit the figure is marked ">="; the run time of the receiving core for each packet (ns/packet)
tells those apart. veth has no DMA: ratios carry over to other machines, absolute figures do not.

It takes about three minutes on an idle machine with two cores or more; --quick is a look, not a figure to quote.`

const benchLadderExample = `  sudo levee bench ladder
  sudo levee bench ladder --quick --rung levee --rung "nft netdev ingress"
  sudo levee bench ladder --json > ladder.json`

func newBench(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bench COMMAND",
		Short:   "Measure levee and its peers on this machine",
		Long:    "Measure levee and its peers on this machine, in a lab of its own, by rules that the tool itself checks.",
		Example: benchLadderExample,
		Args:    cobra.ArbitraryArgs,
		RunE:    groupRun,
	}
	cmd.AddCommand(newBenchLadder(e))
	return cmd
}

type ladderFlags struct {
	policy, window string
	rungs          []string
	rounds         int
	quick, json    bool
	seed           uint64
}

func newBenchLadder(e *env) *cobra.Command {
	var f ladderFlags
	cmd := &cobra.Command{
		Use:     "ladder",
		Short:   "Packets a second that one core drops, by where and by what",
		Long:    benchLadderLong,
		Example: benchLadderExample,
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := e.ladderOptions(cmd, &f)
			if err != nil {
				return err
			}
			return e.benchLadder(o, f.json)
		},
	}
	cmd.Flags().StringVar(&f.policy, "policy", "", "a policy of your own for levee; the peers keep the rules of the demo policy")
	cmd.Flags().StringArrayVar(&f.rungs, "rung", nil, "measure this one only; may be given several times")
	cmd.Flags().IntVar(&f.rounds, "rounds", 6, "rounds, 6 or more")
	cmd.Flags().StringVar(&f.window, "window", "", "length of a window (default 1s, with --quick 250ms)")
	cmd.Flags().BoolVar(&f.quick, "quick", false, "short windows: for a look")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the floods")
	jsonFlag(cmd, &f.json)
	return cmd
}

func (e *env) ladderOptions(cmd *cobra.Command, f *ladderFlags) (o bench.Options, err error) {
	o = bench.Options{Rungs: f.rungs, Rounds: f.rounds, Quick: f.quick, Seed: f.seed}
	if f.rounds < 6 || f.rounds > 1000 {
		return o, usagef(cmd, "--rounds %d: use 6, which a 95 %% interval of a median needs, to 1000", f.rounds)
	}
	if f.window != "" {
		if o.Window, err = parseDuration(f.window); err != nil || o.Window < 50*time.Millisecond || o.Window > time.Minute {
			return o, usagef(cmd, "--window %q: use 50ms to 1m", f.window)
		}
	}
	if f.policy != "" {
		src, err := e.readSource(f.policy)
		if err != nil {
			return o, err
		}
		o.Policy, o.PolicyName = src.text, src.title()
	}
	o.Command = "levee bench ladder"
	for _, a := range e.args[min(2, len(e.args)):] {
		o.Command += " " + shellquote(a)
	}
	return o, nil
}

// benchLadder ends with status 1 if a rung that is there has no figure.
func (e *env) benchLadder(o bench.Options, asJSON bool) error {
	if err := e.privileged(); err != nil {
		return err
	}
	ctx, stop := e.signals()
	defer stop()
	p := e.progress()
	start := e.now()
	o.Progress = func(doing string, done, total int) {
		left := ""
		if done > 0 {
			left = fmt.Sprintf(", %v left", (e.now().Sub(start) / time.Duration(done) * time.Duration(total-done)).Round(time.Second))
		}
		p.printf("%s%s", doing, left)
	}
	r, err := bench.Ladder(ctx, o)
	p.clear()
	if err != nil {
		return err
	}
	if asJSON {
		err = e.printJSON(r)
	} else {
		err = r.Text(e.stdout)
	}
	if err == nil && !r.Complete() {
		return errNo
	}
	return err
}

// shellquote is a word as a shell reads it back.
func shellquote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_=./,:@%+", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
