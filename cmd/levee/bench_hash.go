package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/bench/hash"
	"levee/internal/lang/syntax"
)

const benchHashLong = `Measure what a hash of a flow's key costs in eBPF and in Go: SipHash-2-4 and 1-3, jhash (lookup3), XXH3, MurmurHash3 and
CRC-32C, for keys of 4, 8, 16, 36 and 64 bytes (an IPv4 flow has 13, an IPv6 flow 37). ns above the same loop without a hash,
as a stream of independent hashes and as a chain in which each waits for the one before. Both sides must give the same hash for
random keys, or there is no figure. Also how well each spreads keys that differ by little. About ten seconds.`

func newBenchHash(e *env) *cobra.Command {
	var o hash.Options
	var quick bool
	var out benchOutput
	cmd := &cobra.Command{
		Use:     "hash",
		Short:   "What SipHash, jhash, xxh3, murmur3 and crc32c cost in eBPF and in Go",
		Long:    benchHashLong,
		Example: "  sudo levee bench hash\n  sudo levee bench hash --only siphash24,jhash --bytes 16 --json",
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			if err := roundsFlag(cmd, o.Rounds); err != nil {
				return err
			}
			if quick && o.Rounds == 0 {
				o.Rounds = 6
			}
			o.Command = e.command()
			ctx, stop := e.signals()
			defer stop()
			progress := e.timed()
			o.Progress = progress.step
			rep, err := hash.Measure(ctx, o)
			progress.clear()
			if rep == nil {
				return err
			}
			return e.printBench(rep, err, &out)
		},
	}
	cmd.Flags().StringSliceVar(&o.Only, "only", nil, "only these functions: "+strings.Join(hash.Names(), ", "))
	cmd.Flags().IntSliceVar(&o.Lengths, "bytes", nil, "only keys of these lengths: 4, 8, 16, 36, 64")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 0, "rounds (default 15; 6 are the fewest that give an interval)")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of keys and secret")
	cmd.Flags().BoolVar(&quick, "quick", false, "6 rounds: a look, not a figure to quote")
	out.register(cmd)
	return cmd
}

// timed is a progress line with the time that is left.
type timed struct {
	*progress
	start time.Time
}

func (e *env) timed() *timed { return &timed{e.progress(), e.now()} }

// step shows what is done, and how long the rest takes if it goes on like this.
func (t *timed) step(doing string, done, total int) {
	left := ""
	if passed := t.e.now().Sub(t.start); done > 0 && passed > time.Second {
		left = ", about " + (passed * time.Duration(total-done) / time.Duration(done)).Round(time.Second).String() + " left"
	}
	t.printf("%d of %d: %s%s", min(done+1, total), total, doing, left)
}

// command is what was typed, so that it can be pasted into a shell.
func (e *env) command() string {
	words := []string{"levee"}
	for _, a := range e.args {
		if syntax.Escaped(a) != a || strings.Contains(a, "\n") {
			a = "$'" + strings.Trim(strings.ReplaceAll(strconv.Quote(a), "'", `\'`), `"`) + "'" // bash knows Go's escapes
		} else if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`*?[]{}()<>|&;#~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
