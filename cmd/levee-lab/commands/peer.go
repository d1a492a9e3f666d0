package commands

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	floods "levee/internal/bench/flood"
	"levee/internal/bench/rrul"
	"levee/internal/cli"
	"levee/internal/lab/peer"
)

// newPeer returns the hidden command that a measurement starts at its other end.
func newPeer(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    "peer",
		Short:  "The other end of a measurement",
		Hidden: true,
		Args:   cli.WantArgs(),
		RunE: func(*cobra.Command, []string) error {
			self, err := e.Executable()
			if err != nil {
				return err
			}
			ctx, stop := e.Signals()
			defer stop()
			return peer.Serve(ctx, peer.Serving{Version: cli.VersionLine(),
				Roles: map[string][]string{rrul.RoleName: {self, "bench", rrulRole}}}, e.Stdin,
				e.Stdout)
		},
	}
}

// wireFlags are the flags of a measurement that can have its floods come over a real card.
type wireFlags struct {
	wire floods.Wire
	rsh  string
}

// wireHelp is a part of the help of such a measurement.
const wireHelp = `

With --peer HOST the flood comes over a real wire: the interface --dev of this machine receives,
and --peer-dev of HOST sends, to which ` + "`ssh HOST`" + ` has to lead without a question. Nothing
is installed there. Both interfaces are taken out of their networks for that time, with one channel
each, and come back as they were; so ssh, and all else, has to go another way.`

func (f *wireFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.wire.Host, "peer", "", "have this `host`, as ssh calls it, be the other end")
	cli.DevFlag(cmd, &f.wire.Dev, "with --peer: the interface here that receives")
	fl.StringVar(&f.wire.Device, "peer-dev", "", "with --peer: the interface there that sends")
	fl.IntVar(&f.wire.CPU, "peer-cpu", 0, "with --peer: the core there that sends")
	fl.StringVar(&f.rsh, "rsh", "",
		"with --peer: run `command` HOST LINE instead of ssh, where LINE is one of a shell there")
	fl.StringVar(&f.wire.Command, "peer-command", "",
		"with --peer: levee-lab as `command` calls it there (default: this one is copied)")
	fl.BoolVar(&f.wire.Own, "own-network", false,
		"with --peer: both interfaces, and the network between them, are mine to flood")
}

// read sets the wire, nil without a peer.
func (f *wireFlags) read(cmd *cobra.Command, to **floods.Wire) (err error) {
	if f.wire.Host == "" {
		for _, name := range []string{"dev", "peer-dev", "peer-cpu", "rsh", "peer-command",
			"own-network"} {
			if cmd.Flags().Changed(name) {
				return cli.Usagef(cmd, "--%s means nothing without --peer", name)
			}
		}
		if cmd.Flags().Changed("peer") {
			return cli.Usagef(cmd, "--peer is empty: name a host")
		}
		return nil
	}
	if strings.HasPrefix(f.wire.Host, "-") {
		return cli.Usagef(cmd, "--peer %s: that is no host", f.wire.Host)
	}
	f.wire.Shell, f.wire.Version = strings.Fields(f.rsh), cli.VersionLine()
	if f.wire.Command == "" {
		if f.wire.Program, err = os.Executable(); err != nil {
			return err
		}
	}
	*to = &f.wire
	return nil
}
