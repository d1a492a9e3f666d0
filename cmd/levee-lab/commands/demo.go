package commands

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/lab/demo"
)

const labDemoLong = `Show a web service under floods: two network namespaces, a real HTTP
service behind the interface, real visitors, and a flood of forged packets: UDP, SYN with and
without options, ACK, RST, FIN, echo requests, fragments, all in turn; first without a defence, then
behind nftables with synproxy and conntrack, then behind levee. The demo measures the machine and
then searches for the highest rate of the flood at which each holds the service. It shows that
rate, what the visitors got at it and what became of the packets, and a curve over the rates.

Nothing leaves the machine and nothing is left behind, also after Ctrl-C. Exit status 0 means
that the demo ran.`

type demoFlags struct {
	policy, capture, rate, picture string
	seed                           uint64
}

func newLabDemo(e *env) *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "A web service under a flood: without levee, with nftables, with levee",
		Long:    labDemoLong,
		Example: "  sudo levee lab demo\n  sudo levee lab demo --capture synflood.pcap --rate 3M",
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := e.demoOptions(cmd, &f)
			if err != nil {
				return err
			}
			return e.labDemo(o)
		},
	}
	cmd.Flags().StringVar(&f.policy, "policy", "",
		"a policy of your own for the last act (default: examples/service.levee)")
	cmd.Flags().StringVar(&f.capture, "capture", "",
		"a SYN flood to replay in place of packets of all kinds")
	cmd.Flags().StringVar(&f.rate, "rate", "",
		"the highest rate of the flood to try, packets a second, 10k or more (default: what goes)")
	cmd.Flags().StringVar(&f.picture, "picture", "",
		"also write the final screen to this file, as SVG")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the flood")
	return cmd
}

// demoRole is the hidden command by which the demo starts its service and its visitors.
const demoRole = "demo-role"

func newLabDemoRole(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    demoRole + " ROLE ARG...",
		Short:  "A process of the demo",
		Hidden: true,
		Args:   cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := e.Signals()
			defer stop()
			return demo.Role(ctx, args, e.Stdin, e.Stdout)
		},
	}
}

func (e *env) demoOptions(cmd *cobra.Command, f *demoFlags) (o demo.Options, err error) {
	o = demo.Options{Out: e.Stdout.Raw(), Terminal: e.Stdout.Terminal, Capture: f.capture,
		Seed:    f.seed,
		Picture: f.picture}
	if f.rate != "" {
		if o.Rate, err = cli.ParseRate(f.rate); err != nil {
			return o, cli.Usagef(cmd, "--rate: %v", err)
		}
		if o.Rate < demo.LowestRate {
			return o, cli.Usagef(cmd, "--rate %s: use %.0f packets a second or more", f.rate,
				demo.LowestRate)
		}
	}
	if f.picture != "" {
		if err := isDirectory("picture", filepath.Dir(f.picture)); err != nil {
			return o, err
		}
	}
	if f.policy != "" {
		src, err := e.ReadSource(f.policy)
		if err != nil {
			return o, err
		}
		o.Policy, o.Name = src.Text, src.Title()
	}
	o.Self, err = e.demoSelf()
	return o, err
}

// demoSelf returns the command line of a role of the demo, without its arguments.
func (e *env) demoSelf() ([]string, error) {
	self, err := e.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, of which the demo starts more: %w", err)
	}
	return []string{self, "lab", demoRole}, nil
}

func (e *env) labDemo(o demo.Options) error {
	if err := e.Privileged(); err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	return demo.Run(ctx, o)
}
