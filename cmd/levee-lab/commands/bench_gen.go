package commands

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/generators"
	"levee/internal/cli"
)

const benchGenLong = `Compare the paths of levee gen (live frames, AF_XDP, packet socket, UDP
socket) with trafgen, masscan and tcpreplay, where they are installed: packets a second as fast
as each goes, how far each is off a requested rate, and how even the gaps are. One lab, one
receiver, interleaved rounds; the medians with their 95 % intervals.

With --burst, levee's live frames are sent so many at once, with --copies each frame of its other
paths so many times in a row before the next is made (as clone_skb of the kernel's pktgen), and
nothing else is measured: packets a second and gaps against both.

What counts is taken at the device and by the receiver, not from what a generator says of
itself. All rates and generators take about seven minutes; choose with --only and --rates.`

const benchGenExample = `  sudo levee bench gen --quick
  sudo levee bench gen --only 'levee live,trafgen' --rates 1M,2M
  sudo levee bench gen --burst 1,4,16,64 --rates 1M,4M
  sudo levee bench gen --json > generators.json`

func newBenchGen(e *env) *cobra.Command {
	var o generators.Options
	var rates []string
	cmd := newMeasurement(e, benchCommand{
		use: "gen",
		short: "Packet generators: rate, exactness and gaps, against trafgen, masscan and " +
			"tcpreplay",
		long: benchGenLong, example: benchGenExample,
		options: &o.Options,
		rounds:  "rounds (default 6, the fewest that give an interval)",
		window:  "length of a window (default 1s)",
		seed:    "seed of what varies",
		quick:   "short windows and three rates: a look, not a figure to quote",
	}, func(cmd *cobra.Command) (err error) {
		o.Rates, err = numbersFlag(cmd, "rates", rates, cli.ParseRate)
		return err
	}, func(ctx context.Context) (*generators.Report, error) { return generators.Run(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Only, "only", nil,
		"only these: "+strings.Join(generators.Names(), ", "))
	cmd.Flags().IntSliceVar(&o.Bursts, "burst", nil,
		"a sweep: so many live frames at once, powers of two to 64")
	cmd.Flags().IntSliceVar(&o.Copies, "copies", nil,
		"a sweep: each frame from user space so many times in a row")
	cmd.Flags().StringSliceVar(&rates, "rates", nil,
		"requested packets a second: 1000, 50k, 2M (default 1k to 2M)")
	return cmd
}
