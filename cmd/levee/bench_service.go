package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/lab/demo"
)

const benchServiceLong = `Measure what the visitors of a web service get before, during and after a flood, by time: requests answered in time and
latency, under each kind of flood (UDP, SYN, ACK, ICMP echo, fragments), without a defence and behind iptables, nftables and
levee with the rules of the demo policy.

Each request counts from when it was due, and fails after a second. Three and a half minutes.`

const benchServiceExample = `  sudo levee bench service --html service.html
  sudo levee bench service --flood syn,udp --defence none,levee --rate 1M`

func newBenchService(e *env) *cobra.Command {
	var (
		o                           demo.ServiceOptions
		before, during, after, rate string
		out                         benchOutput
	)
	cmd := &cobra.Command{
		Use:     "service",
		Short:   "A web service before, during and after each kind of flood",
		Long:    benchServiceLong,
		Example: benchServiceExample,
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			for _, f := range []struct {
				name, text string
				to         *time.Duration
			}{{"before", before, &o.Before}, {"during", during, &o.During}, {"after", after, &o.After}} {
				if err := durationFlag(cmd, f.name, f.text, f.to); err != nil {
					return err
				}
			}
			if !(o.Requests > 0) {
				return usagef(cmd, "--requests %g: a number above 0", o.Requests)
			}
			var err error
			if o.Rate, err = parseRate(rate); err != nil {
				return usagef(cmd, "--rate: %v", err)
			}
			if o.Self, err = e.demoSelf(); err != nil {
				return err
			}
			o.Command = e.command()
			return measured(e, &out, func(ctx context.Context, progress func(string, int, int)) (*demo.ServiceReport, error) {
				o.Progress = progress
				return demo.Service(ctx, o)
			})
		},
	}
	cmd.Flags().StringSliceVar(&o.Floods, "flood", nil, "only these: "+strings.Join(demo.FloodNames(), ", "))
	cmd.Flags().StringSliceVar(&o.Defences, "defence", nil, "only these: "+strings.Join(demo.DefenceNames(), ", "))
	cmd.Flags().StringVar(&before, "before", "", "time before the flood (default 2s)")
	cmd.Flags().StringVar(&during, "during", "", "time of the flood (default 4s)")
	cmd.Flags().StringVar(&after, "after", "", "time after the flood (default 3s)")
	cmd.Flags().StringVar(&rate, "rate", "2.5M", "packets a second of the flood")
	cmd.Flags().Float64Var(&o.Requests, "requests", 200, "requests a second")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the floods")
	out.register(cmd)
	return cmd
}
