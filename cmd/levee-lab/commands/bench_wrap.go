package commands

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench/wrap"
	"levee/internal/cli"
)

const benchWrapLong = `Measure what a policy of its own costs a service (levee wrap): the
throughput of a TCP connection to it, with 22, 100 and 10,000 rules at its cgroup and at its
sockets, against that of a service without a policy, at MTUs of 1280, 1500, 9000 and 65536 bytes.
Services run in cgroups that are made for them, and connections over the loopback of a network
namespace; each packet of the MTU is judged for itself.

The share of each round is that of the service without a policy in the same round. Packets and
their size are as the policy counts them. Two minutes; --quick half a minute. Exit status 1 means
that a policy has no figure.`

const benchWrapExample = `  sudo levee bench wrap
  sudo levee bench wrap --quick --rules 100 --mtu 1500 --way cgroup
  sudo levee bench wrap --html wrap.html --json > wrap.json`

func newBenchWrap(e *env) *cobra.Command {
	var o wrap.Options
	cmd := newMeasurement(e, benchCommand{
		use:   "wrap",
		short: "Throughput of a service with a policy of its own, against one without",
		long:  benchWrapLong, example: benchWrapExample,
		options: &o.Options,
		rounds:  "rounds (default 7; 6 are the fewest that give an interval)",
		window:  "length of a window (default 400ms, quick 100ms)",
		seed:    "seed of the rules", quick: shortWindows,
	}, func(*cobra.Command) error {
		self, err := e.Executable()
		if err != nil {
			return fmt.Errorf("find this program, of which the measurement starts more: %w", err)
		}
		o.Self = []string{self, "bench", wrapService}
		return nil
	}, func(ctx context.Context) (*wrap.Report, error) { return wrap.Run(ctx, o) })
	cmd.Flags().IntSliceVar(&o.Rules, "rules", nil, "numbers of rules (default 22, 100, 10000)")
	cmd.Flags().IntSliceVar(&o.MTUs, "mtu", nil,
		"sizes of packets, in bytes (default 1280, 1500, 9000, 65536)")
	cmd.Flags().StringSliceVar(&o.Ways, "way", nil, "only these: "+strings.Join(wrap.Ways, ", "))
	return cmd
}

// wrapService is the hidden command by which the measurement starts services.
const wrapService = "wrap-service"

func newBenchWrapService(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    wrapService + " ADDRESS [filter]",
		Short:  "A service that bench wrap measures",
		Hidden: true,
		Args:   cli.WantSome("ADDRESS"),
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := e.Signals()
			defer stop()
			return wrap.Sink(ctx, args, e.Stdin, e.Stdout)
		},
	}
}
