package command

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent/client"
	"levee/internal/agent/defend"
	"levee/internal/agent/rulebook"
	"levee/internal/cli"
	"levee/internal/lang/diag"
)

func newAgentRules(e *env) *cobra.Command {
	return cli.Noun("rules", "Show live rules, add one, take one back",
		`Rules that are in force besides those of the policies. Each is of somebody: a detector has its
name, a program that of its token, and a command is "command". Each adds and withdraws its own.`,
		`  sudo levee agent rules list
  sudo levee agent rules add --dev eth0 --lease 10m drop udp from 203.0.113.0/24
  sudo levee agent rules withdraw live-3`,
		newRulesList(e), newRulesAdd(e), newRulesWithdraw(e))
}

func newRulesList(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show live rules, and whose they are",
		Long: `Show the rules that are in force besides those of the policies, in the order in which they are
asked: who each is of, until when it stays, and what it has decided.`,
		Example: "  sudo levee agent rules list",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var r defend.RulesReport
			if err := client.Ask(http.MethodGet, "rules", nil, &r); err != nil {
				return err
			}
			if asJSON {
				return e.PrintJSON(r)
			}
			out := e.Stdout.Screen()
			for i := range r.Rules {
				printRule(out, &r.Rules[i])
			}
			if len(r.Rules) == 0 {
				fmt.Fprintln(out, "no live rules are in force")
			}
			return out.Flush()
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

func printRule(out io.Writer, r *defend.LiveRule) {
	until := ""
	if r.Until != nil {
		until = ", until " + r.Until.Local().Format(time.DateTime)
	}
	fmt.Fprintf(out, "%s on %s, of %s%s: %s\n    %s\n", r.ID, r.Dev,
		diag.Escaped(r.Origin), until, cli.Plural(r.Packets, "packet"), diag.Escaped(r.Rule))
}

func newRulesAdd(e *env) *cobra.Command {
	var dev, lease string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add RULE",
		Short: "Put a live rule into force for a time",
		Long: `Put a rule into force in front of those of the policy, behind what it protects, for a time. It
drops or limits, as a rule of a policy does. What would cut off a session of this machine, or take
what is essential, is refused, and nothing has changed then. The rule outlives another policy and
another start of the agent; a minute after the agent has ended it is out of force.`,
		Example: `  sudo levee agent rules add --dev eth0 --lease 10m drop udp from 203.0.113.0/24
  sudo levee agent rules add --dev eth0 --lease 1h limit tcp syn to port 443 rate 1000/s`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dev == "" || lease == "" || len(args) == 0 {
				return cli.Usagef(cmd, "say where, how long and what: --dev DEV --lease 10m RULE")
			}
			in := defend.RuleInput{}
			in.Body.Dev, in.Body.Lease, in.Body.Rule = dev, lease, strings.Join(args, " ")
			var r defend.LiveRule
			err := client.Ask(http.MethodPost, "rules", in.Body, &r)
			return e.printChanged(&r, err, "in force", asJSON)
		},
	}
	cmd.Flags().StringVar(&dev, "dev", "", "the interface")
	cmd.Flags().StringVar(&lease, "lease", "", "how long, such as 10m, 7d at most")
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

func newRulesWithdraw(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "withdraw ID",
		Short: "Take a live rule back that a command has added",
		Long: `Take a live rule back that a command has added. Those of programs and detectors stay: levee agent
undo takes any back.`,
		Example: "  sudo levee agent rules withdraw live-3",
		Args:    cli.WantArgs("ID"),
		RunE: func(_ *cobra.Command, args []string) error {
			var r defend.LiveRule
			err := client.Ask(http.MethodPost, "rules/"+url.PathEscape(args[0])+"/withdraw",
				struct{}{}, &r)
			return e.printChanged(&r, err, "withdrawn", asJSON)
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// printChanged prints a live rule of which something was done.
func (e *env) printChanged(r *defend.LiveRule, err error, what string, asJSON bool) error {
	switch {
	case err != nil:
		return err
	case asJSON:
		return e.PrintJSON(r)
	}
	fmt.Fprintf(e.Stdout, "%s on %s is %s: %s\n", r.ID, r.Dev, what, diag.Escaped(r.Rule))
	return nil
}

// undoRule takes back a live rule of any origin.
func (e *env) undoRule(id string, asJSON bool) error {
	var r defend.LiveRule
	err := client.Ask(http.MethodPost, "rules/"+url.PathEscape(id)+"/undo", struct{}{}, &r)
	if errors.Is(err, client.ErrNone) {
		r, err = e.undoRuleAlone(id)
	}
	return e.printChanged(&r, err, "taken back", asJSON)
}

func (e *env) undoRuleAlone(id string) (defend.LiveRule, error) {
	if err := e.Privileged(); err != nil {
		return defend.LiveRule{}, err
	}
	book := rulebook.Open(client.Rules())
	if book.Damaged != nil {
		return defend.LiveRule{}, fmt.Errorf("%s is damaged, and is put aside as %s: %w",
			book.Path(), book.Aside(), book.Damaged)
	}
	ctx, stop := e.Signals()
	defer stop()
	return defend.WithdrawAlone(ctx, book, id)
}
