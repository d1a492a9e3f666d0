package commands

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/hash"
)

const benchHashLong = `Measure what a hash of a flow's key costs in eBPF and in Go: SipHash-2-4
and 1-3, jhash (lookup3), XXH3, MurmurHash3, CRC-32C and SHA-256, for keys of 4 to 64 bytes
(an IPv4 flow has 13, an IPv6 flow 37). ns above the same loop without a hash, as a stream of
independent hashes and as a chain in which each waits for the one before. Both sides must give
the same hash for random keys, or there is no figure. Also how well each spreads keys that
differ by little. About ten seconds.`

func newBenchHash(e *env) *cobra.Command {
	var o hash.Options
	cmd := newMeasurement(e, benchCommand{
		use:   "hash",
		short: "What SipHash, jhash, xxh3, murmur3, crc32c and sha256 cost in eBPF and in Go",
		long:  benchHashLong, example: "  sudo levee bench hash\n  sudo levee bench hash --only " +
			"siphash24,jhash --bytes 16 --json",
		options: &o.Options,
		rounds:  "rounds (default 15; 6 are the fewest that give an interval)",
		seed:    "seed of keys and secret", quick: "6 rounds: a look, not a figure to quote",
	}, noFurtherFlags, func(ctx context.Context) (*hash.Report, error) { return hash.Run(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Only, "only", nil,
		"only these functions: "+strings.Join(hash.Names(), ", "))
	cmd.Flags().IntSliceVar(&o.Lengths, "bytes", nil,
		"only keys of these lengths: 4, 8, 16, 32, 36, 64")
	return cmd
}

// noFurtherFlags is of a measurement whose own flags go into its options as they are.
func noFurtherFlags(*cobra.Command) error { return nil }
