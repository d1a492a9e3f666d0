package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/lab/demo"
)

const labDemoLong = `Show a web service under floods: two network namespaces, a real HTTP
service behind the interface, real visitors, and millions of forged packets a second: UDP, SYN with
and without options, ACK, echo requests, all in turn; first without a defence, then behind nftables
with synproxy and conntrack, then behind levee. Goodput and latency of the visitors and packets
dropped are shown while it runs, a table at the end. A SYN-flood capture is replayed into it where
one is at hand.

Nothing leaves the machine and nothing is left behind, also after Ctrl-C. Exit status 0 means
that the service was held.`

type demoFlags struct {
	policy, capture, rate, act, picture string
	seed                                uint64
}

func newLabDemo(e *env) *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "A web service under a flood: without levee, with nftables, with levee",
		Long:    labDemoLong,
		Example: "  sudo levee lab demo\n  sudo levee lab demo --capture synflood.pcap --rate 3M",
		Args:    wantArgs(),
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
		"a SYN flood to replay (default: the one of the demo, if it is at hand)")
	cmd.Flags().StringVar(&f.rate, "rate", "", "packets a second of the flood (default 2.5M)")
	cmd.Flags().StringVar(&f.act, "act", "", "how long each act counts (default 10s)")
	cmd.Flags().StringVar(&f.picture, "picture", "",
		"also write the final screen to this file, as SVG")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the flood")
	return cmd
}

// demoRole is the hidden command that the demo starts its service and its visitors with.
const demoRole = "demo-role"

func newLabDemoRole(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    demoRole + " ROLE ARG...",
		Short:  "A process of the demo",
		Hidden: true,
		Args:   cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := e.signals()
			defer stop()
			return demo.Role(ctx, args, e.stdin, e.stdout)
		},
	}
}

func (e *env) demoOptions(cmd *cobra.Command, f *demoFlags) (o demo.Options, err error) {
	o = demo.Options{Out: e.stdout, Terminal: e.stdout.terminal, Capture: f.capture, Seed: f.seed,
		Picture: f.picture}
	if f.rate != "" {
		if o.Rate, err = parseRate(f.rate); err != nil {
			return o, usagef(cmd, "--rate: %v", err)
		}
	}
	if f.act != "" {
		if o.Act, err = parseDuration(f.act); err != nil || o.Act < time.Second ||
			o.Act > time.Minute {
			return o, usagef(cmd, "--act %q: use 1s to 1m", f.act)
		}
	}
	if f.picture != "" {
		if err := isDirectory("picture", filepath.Dir(f.picture)); err != nil {
			return o, err
		}
	}
	if f.policy != "" {
		src, err := e.readSource(f.policy)
		if err != nil {
			return o, err
		}
		o.Policy, o.Name = src.text, src.title()
	}
	o.Self, err = e.demoSelf()
	return o, err
}

// demoSelf is the command line of a role of the demo, without its arguments.
func (e *env) demoSelf() ([]string, error) {
	self, err := e.executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, of which the demo starts more: %w", err)
	}
	return []string{self, "lab", demoRole}, nil
}

func (e *env) labDemo(o demo.Options) error {
	if err := e.privileged(); err != nil {
		return err
	}
	ctx, stop := e.signals()
	defer stop()
	err := demo.Run(ctx, o)
	if errors.Is(err, demo.ErrNotHeld) {
		return errNo // its table has said so
	}
	return err
}
