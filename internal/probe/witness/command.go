package witness

import (
	"net/netip"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/inspect"
	"levee/internal/lang/diag"
	"levee/internal/usage"
)

const long = `Tell what the policy in force decides about the packets of some addresses, for "levee probe" on
another machine, which starts this command, usually by ssh. It prints an object of JSON a line: the
policy in force, each packet from --from with what decided it, and at the end what was lost.

It opens no port and answers nobody on the network. A line of its standard input is answered once the
packets before it are told. It ends with that input, so that nothing is left of it when the connection
breaks. Without --dev it is the one interface of this network namespace that has
a policy.`

const example = `  ssh root@edge.example.net levee witness --dev eth0 --from 203.0.113.5`

// Reads reads the policy in force on an interface, "" for the one that has one.
type Reads func(cmd *cobra.Command, dev string) (string, *inspect.InForce, error)

// New is the command `levee witness`.
func New(e *cli.Env, inForce Reads) *cobra.Command {
	var dev string
	var from []string
	cmd := &cobra.Command{
		Use:     "witness --from ADDRESS,...",
		Short:   "Tell a levee probe elsewhere what became of its packets",
		Long:    long,
		Example: example,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sources, err := parseSources(from)
			if err != nil {
				return err
			}
			dev, _, err := inForce(cmd, dev)
			if err != nil {
				return err
			}
			ctx, stop := e.Signals()
			defer stop()
			return Watch(ctx, dev, sources, e.Stdin, e.Stdout)
		},
	}
	cli.DevFlag(cmd, &dev, "the interface that the probes come to")
	cmd.Flags().StringSliceVar(&from, "from", nil, "the `ADDRESS`es from which the probes come")
	return cmd
}

// mostSources is the number of addresses that a witness tells of: one of each family is usual.
const mostSources = 4

func parseSources(words []string) (out []netip.Addr, err error) {
	if len(words) == 0 || len(words) > mostSources {
		return nil, usage.Wrongf("--from takes 1 to %d addresses from which the probes come",
			mostSources)
	}
	for _, w := range words {
		a, err := netip.ParseAddr(w)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return nil, usage.Wrongf("--from takes the addresses from which the probes come, "+
				"not %s", diag.Quoted(w))
		}
		out = append(out, a)
	}
	return out, nil
}
