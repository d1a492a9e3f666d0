package commands

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench"
	"levee/internal/bench/rrul"
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
floods of packets as their clients send them: first ones, "random" from drawn addresses and "idle"
in the names of clients that have sessions, and "stray" as of sessions, from drawn addresses. Each
is measured without a defence, behind nftables, behind the profile without what proves clients,
behind the profile, and behind "foreknown": joins, packets of sessions, and joins from addresses in
whose name the flood comes.

With --rrul, measure a service under TCP at full speed both ways in the place of floods: --flows
from it and as many to it for --during, with UDP datagrams and echo requests beside them (--probes a
second of each kind), behind each defence that keeps connections, and with each --queue at both ends
of the way, which lets --bandwidth bits a second by. Throughput by direction and flow, round trips
without load and under it, and what the kernel tells of the queues: what they are, what waits there,
what they drop. Give each of several runs a --title, and lay them beside each other by levee bench
compare. Four minutes.

Each request counts from when it was due, and fails after a second, or with --profile after
--patience: who comes for the first time to a greylist has to come again, as his protocol has it.
Those that are due later than that before the end of the flood are left out. Fifteen minutes for a
family and a round, and fourteen for all profiles.`

const benchServiceExample = `  sudo levee bench service --html service.html
  sudo levee bench service --flood syn,udp --defence none,levee --rate 1M
  sudo levee bench service --profile source-engine,quic
  sudo levee bench service --rrul --html rrul.html
  sudo levee bench service --rrul --queue tbf,cake --bandwidth 50M --title home --json > home.json
  sudo levee bench service --rrul --peer root@192.0.2.7 --dev eth1 --peer-dev eth1 --own-network`

func newBenchService(e *env) *cobra.Command {
	var o service.Options
	var r rrulFlags
	var before, during, after, rate, patience string
	var requests float64
	var families []string
	cmd := newMeasurement(e, benchCommand{
		use:   "service",
		short: "A web service before, during and after each kind of flood",
		long:  benchServiceLong, example: benchServiceExample,
		options: &o.Options, wire: &r.wire, wireLong: rrulWireHelp,
		rounds: "rounds, of which the medians are shown (default 1, with --rrul 6)",
		seed:   "seed of the floods",
	}, func(cmd *cobra.Command) (err error) {
		if err := r.apart(cmd); err != nil {
			return err
		}
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
		if r.on {
			return r.read(e, cmd, &o)
		}
		o.Self, err = e.demoSelf()
		return err
	}, func(ctx context.Context) (bench.Report, error) {
		if r.on {
			r.options.Options = o.Options // with what measure has added
			return reported(rrul.Run(ctx, r.options))
		}
		return reported(service.Run(ctx, o))
	})
	r.register(cmd)
	cmd.Flags().StringSliceVar(&o.Profiles, "profile", nil, "in place of the web service the "+
		"`services` of these profiles: "+strings.Join(service.ProfileNames(), ", "))
	cmd.Flags().StringSliceVar(&o.Floods, "flood", nil,
		"only these: "+strings.Join(service.FloodNames(), ", ")+"; of profiles: "+
			strings.Join(service.ForgedNames(), ", "))
	cmd.Flags().StringSliceVar(&o.Defences, "defence", nil,
		"only these: "+strings.Join(service.DefenceNames(), ", ")+"; of profiles: "+
			strings.Join(service.ProfileDefenceNames(), ", ")+"; with --rrul: "+
			strings.Join(rrul.DefenceNames(), ", "))
	cmd.Flags().StringSliceVar(&families, "family", nil,
		"4 or 6, of flood and visitors (default 4)")
	cmd.Flags().StringVar(&before, "before", "", "time before flood or load (default 2s)")
	cmd.Flags().StringVar(&during, "during", "",
		"time of flood or load (default 4s, with --rrul 6s)")
	cmd.Flags().StringVar(&after, "after", "",
		"time after flood or load (default 3s, with --rrul 1s)")
	cmd.Flags().StringVar(&patience, "patience", "", "time after which a request to a profile's "+
		"service fails (default 1s)")
	cmd.Flags().StringVar(&rate, "rate", "",
		"packets a second of the flood (default 2.5M, of profiles 1M)")
	cmd.Flags().Float64Var(&requests, "requests", 0,
		"requests a second (default 200; of profiles joins, 25)")
	return cmd
}
