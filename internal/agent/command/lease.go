package command

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent"
	"levee/internal/agent/client"
	"levee/internal/agent/daemon"
	"levee/internal/agent/ledger"
	"levee/internal/cli"
)

func newAgentLease(e *env) *cobra.Command {
	var in agent.AddInput
	cmd := &cobra.Command{
		Use:   "lease ENTRY...",
		Short: "Lease entries under an origin, as other programs do",
		Long: `Put addresses or prefixes into a dynamic set, with a lease under an origin: the name of whatever
leases them, fail2ban for example. They are listed and withdrawn by that name, and stay as long as
any origin leases them. Whom no entry may hold is refused, and nothing is leased then. It works
whether an agent runs or not.`,
		Example: `  sudo levee agent lease --origin fail2ban --set abusers --lease 10m 203.0.113.9
  sudo levee agent withdraw --origin fail2ban --set abusers 203.0.113.9`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || in.Body.Set == "" {
				return cli.Usagef(cmd, "say what and where: --set SET ENTRY...")
			}
			if err := e.Privileged(); err != nil {
				return err
			}
			in.Body.Entries = args
			done := agent.Added{}
			var err error
			for end := time.Now().Add(ledger.Wait); ; {
				err = client.Ask(http.MethodPost, "leases", in.Body, &done)
				if !errors.Is(err, client.ErrNone) {
					break
				}
				done.Leased, err = e.leaseOnce(&in)
				if !errors.Is(err, ledger.ErrBusy) || time.Now().After(end) {
					break
				}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "%s leased\n", entries(done.Leased))
			return nil
		},
	}
	cmd.Flags().StringVar(&in.Body.Set, "set", "", "the dynamic set")
	cmd.Flags().StringVar(&in.Body.Origin, "origin", "command", "whose leases they are")
	cmd.Flags().StringVar(&in.Body.Lease, "lease", "",
		"how long, such as 10m, or forever; without it the lease of the set")
	return cmd
}

// leaseOnce leases entries where no agent runs.
func (e *env) leaseOnce(in *agent.AddInput) (int, error) {
	ctx, stop := e.Signals()
	defer stop()
	return daemon.LeaseOnce(ctx, in, e.Sayf)
}
