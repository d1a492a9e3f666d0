package commands

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/bench"
	floods "levee/internal/bench/flood"
	"levee/internal/bench/rrul"
	"levee/internal/bench/service"
	"levee/internal/cli"
)

// rrulFlags are those of bench service --rrul.
type rrulFlags struct {
	on        bool
	flows     int
	probes    float64
	queues    []string
	bandwidth string
	wire      *floods.Wire // nil for a lab
	options   rrul.Options
}

// rrulWireHelp is the help on measurements whose clients are on a peer.
const rrulWireHelp = `

With --rrul and --peer HOST the clients are on another machine: the interface --dev of this machine
is the service's, and --peer-dev of HOST that of the clients. ` + "`ssh HOST`" + ` has to lead there
without a question. Nothing is installed there. Both interfaces are taken out of their networks for
that time, with one channel each, and come back as they were; so ssh, and all else, has to go
another way. Before, during and after the load are two minutes at most then.`

func (r *rrulFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&r.on, "rrul", false, "TCP at full speed both ways with probes beside it, in the "+
		"place of floods")
	f.IntVar(&r.flows, "flows", 4, "TCP flows each way, with --rrul")
	f.Float64Var(&r.probes, "probes", 100, "probes of each kind a second, with --rrul")
	f.StringSliceVar(&r.queues, "queue", nil, "queues at both ends of the way, with --rrul: "+
		strings.Join(rrul.QueueNames(), ", ")+" (default none)")
	f.StringVar(&r.bandwidth, "bandwidth", "100M", "bits a second that a queue lets by, "+
		"with --rrul")
}

// Flags that only one of the two measurements has.
var (
	withRRUL    = []string{"flows", "probes", "queue", "bandwidth", "peer"}
	withoutRRUL = []string{"flood", "family", "profile", "patience", "rate", "requests"}
)

// apart refuses flags of the other measurement.
func (r *rrulFlags) apart(cmd *cobra.Command) error {
	others, how := withRRUL, "it is for --rrul"
	if r.on {
		others, how = withoutRRUL, "it is for floods, which --rrul has not"
	}
	var errs []error
	for _, name := range others {
		if cmd.Flags().Changed(name) {
			errs = append(errs, cli.Usagef(cmd, "--%s: %s", name, how))
		}
	}
	return errors.Join(errs...)
}

// read takes the flags, and those that both measurements have.
func (r *rrulFlags) read(e *env, cmd *cobra.Command, o *service.Options) error {
	self, err := e.Executable()
	if err != nil {
		return fmt.Errorf("find this program, of which the measurement starts more: %w", err)
	}
	bits, err := cli.ParseRate(r.bandwidth)
	if err != nil {
		return cli.Usagef(cmd, "--bandwidth: %v", err)
	}
	queue := func(name string) bool { return name != rrul.NoQueue }
	if cmd.Flags().Changed("bandwidth") && !slices.ContainsFunc(r.queues, queue) {
		return cli.Usagef(cmd, "--bandwidth: nothing bounds it without a --queue")
	}
	// 0 would be what is usual
	if r.flows < 1 || !(r.probes > 0) {
		return cli.Usagef(cmd, "--flows %d, --probes %g: numbers above 0", r.flows, r.probes)
	}
	r.options = rrul.Options{Self: []string{self, "bench", rrulRole},
		Defences: o.Defences, Queues: r.queues, Bandwidth: bits, Flows: r.flows, Probes: r.probes,
		Before: o.Before, During: o.During, After: o.After, Wire: r.wire}
	return nil
}

// reported is a report of any measurement; none stays none.
func reported[R any, P interface {
	*R
	bench.Report
}](r P, err error) (bench.Report, error) {
	if r == nil {
		return nil, err
	}
	return r, err
}

// rrulRole is the hidden command by which the measurement starts service and clients.
const rrulRole = "rrul-role"

func newBenchRRULRole(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    rrulRole + " ROLE ARG...",
		Short:  "A process of bench service --rrul",
		Hidden: true,
		Args:   cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := e.Signals()
			defer stop()
			return rrul.Role(ctx, args, e.Stdin, e.Stdout)
		},
	}
}
