package command

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent/api"
	"levee/internal/agent/client"
	"levee/internal/cli"
	"levee/internal/lang/literal"
)

const tokenLong = `Tokens let programs and people use the agent's API at a port (levee agent run --listen). Each has
a name and a role: a viewer looks and changes nothing, an operator also changes entries and leases,
an admin may do everything. Over the agent's socket root needs none.

Only a hash of a token is stored, in /var/lib/levee/api-tokens.json: its text is printed once. A
running agent takes changes at once.`

func newAgentToken(e *env) *cobra.Command {
	return cli.Noun("token COMMAND", "Make and revoke tokens of the agent's API", tokenLong,
		`  sudo levee agent token add grafana --role viewer --expires 30d
  sudo levee agent token list
  sudo levee agent token renew grafana --expires never
  sudo levee agent token remove grafana`,
		newTokenAdd(e), newTokenList(e), newTokenRenew(e), newTokenRemove(e))
}

// tokens returns the tokens of the agent's API.
func (e *env) tokens() (*api.Tokens, error) {
	return api.OpenTokens(client.Tokens()), e.Privileged()
}

func newTokenAdd(e *env) *cobra.Command {
	var role, expires string
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Make a token, and print it once",
		Long: `Make a token with a role: viewer, operator or admin. It is printed, and is nowhere else. It
ends after --expires, at most 520w; "never" has no end.`,
		Example: "  sudo levee agent token add grafana --role viewer --expires 30d",
		Args:    cli.WantArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if role == "" {
				return cli.Usagef(cmd, "--role is missing: viewer, operator or admin")
			}
			r, err := api.ParseRole(role)
			if err != nil {
				return cli.Usagef(cmd, "--role: %v", err)
			}
			lasts, err := tokenLasts(cmd, expires)
			if err != nil {
				return err
			}
			all, err := e.tokens()
			if err != nil {
				return err
			}
			text, err := all.Add(args[0], r, lasts)
			if err != nil {
				return err
			}
			fmt.Fprintln(e.Stdout, text)
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "viewer, operator or admin")
	expiresFlag(cmd, &expires)
	return cmd
}

func expiresFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "expires", "90d", "30s, 10m, 12h, 7d, 2w, or never")
}

// tokenLasts returns how long a token lasts, 0 for ever.
func tokenLasts(cmd *cobra.Command, expires string) (lasts time.Duration, err error) {
	if expires == "never" {
		return 0, nil
	}
	if lasts, err = cli.ParseDuration(expires); err != nil {
		return 0, cli.Usagef(cmd, "--expires: %v", err)
	}
	if lasts > literal.MaxLease {
		return 0, cli.Usagef(cmd, "--expires %s: at most %s, or never", expires, cli.Longest)
	}
	return lasts, nil
}

func newTokenRenew(e *env) *cobra.Command {
	var expires string
	cmd := &cobra.Command{
		Use:   "renew NAME",
		Short: "Put off the end of a token",
		Long: `Have a token end after --expires from now, or never, also one that has ended. Its text stays, and
so does each page that is logged in by it: a screen on a wall goes on.`,
		Example: "  sudo levee agent token renew wall --expires never",
		Args:    cli.WantArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			lasts, err := tokenLasts(cmd, expires)
			if err != nil {
				return err
			}
			all, err := e.tokens()
			if err != nil {
				return err
			}
			return all.Renew(args[0], lasts)
		},
	}
	expiresFlag(cmd, &expires)
	return cmd
}

// TokenReport is the object of `levee agent token list --json`.
type TokenReport struct {
	Tokens []TokenListed `json:"tokens"`
}

type TokenListed struct {
	Name    string     `json:"name"`
	Role    string     `json:"role"`
	Made    time.Time  `json:"made"`
	Expires *time.Time `json:"expires"` // null: never
	Ended   bool       `json:"ended"`
}

func newTokenList(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List tokens with their roles",
		Long:    "List the names of tokens with their roles and ends. What they are is not stored.",
		Example: "  sudo levee agent token list --json",
		Args:    cli.WantArgs(),
		RunE: func(*cobra.Command, []string) error {
			all, err := e.tokens()
			if err != nil {
				return err
			}
			list, err := all.List()
			if err != nil {
				return err
			}
			rep := TokenReport{Tokens: []TokenListed{}}
			for _, t := range list {
				one := TokenListed{Name: t.Name, Role: t.Role.String(), Made: t.Made}
				if !t.Expires.IsZero() {
					one.Expires, one.Ended = &t.Expires, !e.Now().Before(t.Expires)
				}
				rep.Tokens = append(rep.Tokens, one)
			}
			if asJSON {
				return e.PrintJSON(rep)
			}
			table := cli.NewTable("NAME ROLE MADE EXPIRES", "<", "<", "<", "<")
			for _, t := range rep.Tokens {
				end := "never"
				if t.Expires != nil {
					end = t.Expires.Format(time.DateOnly)
				}
				if t.Ended {
					end += ", has ended"
				}
				table.Row(t.Name, t.Role, t.Made.Format(time.DateOnly), end)
			}
			table.Print(e.Stdout, "")
			return nil
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

func newTokenRemove(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "Revoke a token",
		Long:    "Revoke a token. Sessions of browsers that logged in with it end at once.",
		Example: "  sudo levee agent token remove grafana",
		Args:    cli.WantArgs("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := e.tokens()
			if err != nil {
				return err
			}
			return all.Remove(args[0])
		},
	}
}
