package commands

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/service"
	"levee/internal/cli"
	"levee/internal/packet"
)

const benchServiceLong = `Measure what the visitors of a web service get before, during and
after a flood, by time: requests answered in time and latency, under each kind of flood (UDP to
all ports and to an open one, SYN with and without options, ACK, RST, FIN, ICMP echo, fragments, all
in turn), without a defence and behind iptables, nftables and levee: with the rules of the demo
policy, and with all that each can do by state (levee-state is examples/service.levee). With the
defence "foreknown", a policy that names the visitors, the rest is seen that is the machine's: on
two cores the generator shares one with them.

With --profile, measure services over UDP behind their profiles in place of the web service, under
floods of packets as their clients send them first: "random" from drawn addresses, "idle" in the
names of clients that have sessions. Each is measured without a defence, behind nftables, behind the
profile without what proves clients, and behind the profile: joins, packets of sessions, and joins
from addresses in whose name the flood comes.

Each request counts from when it was due, and fails after a second, or with --profile after
--patience: who comes for the first time to a greylist has to come again, as his protocol has it.
Those that are due later than that before the end of the flood are left out. Fifteen minutes for a family and
a round, and seven for all profiles.`

const benchServiceExample = `  sudo levee bench service --html service.html
  sudo levee bench service --flood syn,udp --defence none,levee --rate 1M
  sudo levee bench service --profile source-engine,quic`

func newBenchService(e *env) *cobra.Command {
	var o service.Options
	var before, during, after, rate, patience string
	var requests float64
	var families []string
	cmd := newMeasurement(e, benchCommand{
		use:   "service",
		short: "A web service before, during and after each kind of flood",
		long:  benchServiceLong, example: benchServiceExample,
		options: &o.Options,
		rounds:  "rounds, of which the medians are shown (default 1)",
		seed:    "seed of the floods",
	}, func(cmd *cobra.Command) (err error) {
		err = errors.Join(cli.DurationFlag(cmd, "before", before, &o.Before),
			cli.DurationFlag(cmd, "during", during, &o.During),
			cli.DurationFlag(cmd, "after", after, &o.After),
			cli.DurationFlag(cmd, "patience", patience, &o.Patience))
		if err = errors.Join(err, oneOf(cmd, "family", families, "4", "6")); err != nil {
			return err
		}
		for _, v := range families {
			o.Families = append(o.Families,
				map[string]packet.Family{"4": packet.IPv4, "6": packet.IPv6}[v])
		}
		if cmd.Flags().Changed("requests") {
			if o.Requests = requests; !(o.Requests > 0) {
				return cli.Usagef(cmd, "--requests %g: a number above 0", o.Requests)
			}
		}
		if rate != "" {
			if o.Rate, err = cli.ParseRate(rate); err != nil {
				return cli.Usagef(cmd, "--rate: %v", err)
			}
		}
		o.Self, err = e.demoSelf()
		return err
	}, func(ctx context.Context) (*service.Report, error) { return service.Run(ctx, o) })
	cmd.Flags().StringSliceVar(&o.Profiles, "profile", nil, "in place of the web service the "+
		"`services` of these profiles: "+strings.Join(service.ProfileNames(), ", "))
	cmd.Flags().StringSliceVar(&o.Floods, "flood", nil,
		"only these: "+strings.Join(service.FloodNames(), ", ")+"; of profiles: "+
			strings.Join(service.ForgedNames(), ", "))
	cmd.Flags().StringSliceVar(&o.Defences, "defence", nil,
		"only these: "+strings.Join(service.DefenceNames(), ", ")+"; of profiles: "+
			strings.Join(service.ProfileDefenceNames(), ", "))
	cmd.Flags().StringSliceVar(&families, "family", nil,
		"4 or 6, of flood and visitors (default 4)")
	cmd.Flags().StringVar(&before, "before", "", "time before the flood (default 2s)")
	cmd.Flags().StringVar(&during, "during", "", "time of the flood (default 4s)")
	cmd.Flags().StringVar(&after, "after", "", "time after the flood (default 3s)")
	cmd.Flags().StringVar(&patience, "patience", "", "time after which a request to a profile's "+
		"service fails (default 1s)")
	cmd.Flags().StringVar(&rate, "rate", "",
		"packets a second of the flood (default 2.5M, of profiles 1M)")
	cmd.Flags().Float64Var(&requests, "requests", 0,
		"requests a second (default 200; of profiles joins, 25)")
	return cmd
}
