package commands

import (
	"context"

	"github.com/spf13/cobra"

	"levee/internal/bench/path"
	"levee/internal/cli"
)

const benchPathLong = `Measure the round trip to hosts against the size of packets, from 64 to
9000 bytes, over IPv4 and IPv6: what a path takes for any packet, and what each byte adds. The
least of many round trips is that of an empty path; a line through the least ones of all sizes
gives both, as pathchar did. Requests go at random times and sizes, so that nothing periodic in
a host or on the way meets one size more than another.

The requests are echo requests, as those of ping, 100 a second to all hosts together. Packets go
whole: sizes above the MTU of the way have no figure. Exit status 1 means that a host has none.`

const benchPathExample = `  sudo levee bench path 192.0.2.1 www.example.net
  sudo levee bench path --family 6 --sizes 64,512,1024,1500 --html path.html www.example.net`

func newBenchPath(e *env) *cobra.Command {
	var o path.Options
	var families []string
	var rate, timeout string
	cmd := newMeasurement(e, benchCommand{
		use:   "path HOST...",
		short: "The round trip to hosts against the size of packets",
		long:  benchPathLong, example: benchPathExample,
		options: &o.Options,
		rounds:  "requests of each size (default 100)",
		seed:    "seed of sizes and times", quick: "20 requests of each size",
	}, func(cmd *cobra.Command) error {
		o.Hosts = cmd.Flags().Args()
		if err := oneOf(cmd, "family", families, "4", "6"); err != nil {
			return err
		}
		for _, v := range families {
			o.Families = append(o.Families, map[string]string{"4": path.IPv4, "6": path.IPv6}[v])
		}
		if rate != "" {
			n, err := numbersFlag(cmd, "rate", []string{rate}, cli.ParseRate)
			if err != nil {
				return err
			}
			o.Rate = n[0]
		}
		return cli.DurationFlag(cmd, "timeout", timeout, &o.Timeout)
	}, func(ctx context.Context) (*path.Report, error) { return path.Run(ctx, o) })
	cmd.Args = cli.WantSome("HOST")
	cmd.Flags().StringSliceVar(&families, "family", nil, "4 or 6 (default both)")
	cmd.Flags().IntSliceVar(&o.Sizes, "sizes", nil,
		"sizes of IP packets, in bytes (default 16 from 64 to 9000)")
	cmd.Flags().StringVar(&rate, "rate", "", "requests a second, to all hosts (default 100)")
	cmd.Flags().StringVar(&timeout, "timeout", "", "how long the last answer is waited for "+
		"(default 1s)")
	return cmd
}
