package commands

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	floods "levee/internal/bench/flood"
	"levee/internal/bench/ladder"
	"levee/internal/cli"
)

func newBench(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench COMMAND",
		Short: "Measure on this machine what levee's claims are made of",
		Long: "Measurements in a lab that is made for them. A run that breaks one of its own\n" +
			"rules says why, and gives no number.",
		Example: "  sudo levee bench ladder",
		Args:    cobra.ArbitraryArgs,
		RunE:    cli.GroupRun,
	}
	cmd.AddCommand(newBenchLadder(e), newBenchSets(e), newBenchRules(e), newBenchPlan(e),
		newBenchMix(e), newBenchLatency(e), newBenchProfile(e),
		newBenchRoute(e), newBenchHash(e), newBenchService(e), newBenchRRULRole(e),
		newBenchDetect(e),
		newBenchGen(e), newBenchPath(e), newBenchReceive(e), newBenchWrap(e),
		newBenchWrapService(e), newBenchAdvice(e), newBenchCompare(e))
	return cmd
}

const benchLadderLong = `Measure how many packets a second each place to drop them takes, with
the same flood on the same path, for IPv4 and IPv6: an application that receives by recvmmsg
(also with conntrack in the path, and with NOTRACK), an eBPF filter on its socket, iptables
INPUT and raw PREROUTING, nftables at netdev ingress, tc ingress, XDP in generic and in native
mode; and the filters that have the rules of the demo policy: levee, xdp-filter, nftables,
iptables. Packets a second with the 95 % interval, ns and cycles a packet, the share of the
core, what reached the application, and what the machine is. What is not installed, or could not
be measured, says so. Under six minutes; --quick under 90 seconds.

Ratios compare the mean ns of the least third of each place's rounds, which were least
disturbed, and the medians stand beside them. Places whose intervals overlap share their place
in the order ("5=").

veth has no DMA and no descriptors: ratios carry over to other machines, absolute figures do
not. Exit status 1 means that a place that is here has no figure, or that the run was
interrupted: it prints what it has, marked as incomplete.`

const benchLadderExample = `  sudo levee bench ladder
  sudo levee bench ladder --quick --family 6
  sudo levee bench ladder --html ladder.html --against published
  sudo levee bench ladder --peer root@192.0.2.7 --peer-dev eth1 --dev eth1 --own-network
  sudo levee bench ladder --json | jq '.rungs[] | {name, median_pps, interval, by_family}'`

// What a run takes at most, as the help says; rounds are not tried again after it.
const (
	ladderBudget      = 340 * time.Second
	ladderQuickBudget = 85 * time.Second
)

func newBenchLadder(e *env) *cobra.Command {
	var o ladder.Options
	var policy string
	var families []string
	cmd := newMeasurement(e, benchCommand{
		use:   "ladder",
		short: "Packets a second of the places to drop them, against each other",
		long:  benchLadderLong, example: benchLadderExample,
		options: &o.Options.Options, wire: &o.Wire,
		rounds: "rounds (default 16, quick 6, the fewest that give an interval)",
		window: "length of a window (default 400ms, quick 150ms)",
		seed:   "seed of the floods", quick: shortWindows, against: true,
	}, func(cmd *cobra.Command) error {
		if err := oneOf(cmd, "family", families, "4", "6"); err != nil {
			return err
		}
		for _, v := range families {
			o.Families = append(o.Families,
				map[string]string{"4": floods.IPv4, "6": floods.IPv6}[v])
		}
		for _, t := range o.Traffic {
			if !slices.Contains(floods.TrafficNames, t) {
				return cli.Usagef(cmd, "--traffic %s: it is one or more of %s", t,
					strings.Join(floods.TrafficNames, ", "))
			}
		}
		if o.Window == 0 && o.Rounds == 0 {
			o.Budget = ladderBudget
			if o.Quick {
				o.Budget = ladderQuickBudget
			}
		}
		return e.policyFlag(policy, &o.Policy, &o.PolicyName)
	}, func(ctx context.Context) (*ladder.Report, error) { return ladder.Run(ctx, o) })
	cmd.Flags().StringVar(&policy, "policy", "",
		"a policy of your own for levee (default: the demo policy)")
	cmd.Flags().StringSliceVar(&o.Rungs, "rung", nil,
		"only these places, by their names in the report")
	cmd.Flags().StringSliceVar(&families, "family", nil, "4 or 6 (default both)")
	cmd.Flags().StringSliceVar(&o.Traffic, "traffic", nil,
		"floods of the mix: udp, syn, bogon, ack (default udp; the others are for the "+
			"filters alone)")
	return cmd
}
