package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/agent/client"
	"levee/internal/agent/notify"
	"levee/internal/cli"
)

const notifyLong = `Have the agent tell people or programs of what happens: by a webhook, by mail, or by a command.
Each target asks for kinds of events, and gets at most as many messages as its limit allows; what
that holds back is told in one summary.

Targets are in /var/lib/levee/notify.json, which root alone can read, as URLs and keys are secrets.
A running agent takes changes within seconds.`

func newAgentNotify(e *env) *cobra.Command {
	return cli.Noun("notify COMMAND", "Tell people and programs of what happens", notifyLong,
		`  sudo levee agent notify add ops --webhook https://hooks.example/levee --on incident,alarm
  sudo levee agent notify test ops
  sudo levee agent notify list`,
		newNotifyAdd(e), newNotifyList(e), newNotifyTest(e), newNotifyRemove(e))
}

func newNotifyAdd(e *env) *cobra.Command {
	var webhook, mail, command, on, limit string
	var t notify.Target
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a target, or replace the one of its name",
		Long: `Add a target, or replace the one of its name. A webhook is a POST of JSON, tried four times,
signed as Standard Webhooks say; the key of its signatures is printed once. Mail goes through the
server of --smtp, or the local sendmail. A command is run without a shell, with the JSON as its
input, and is killed after ten seconds; it must be root's, and nobody else may write it.

Kinds of events are incident, alarm, policy (another is in force), refused (an entry that nobody may
be) and withdrawn.`,
		Example: `  sudo levee agent notify add ops --webhook https://hooks.example/levee --limit 10/h
  sudo levee agent notify add night --mail ops@example.net --smtp 127.0.0.1:25 --on incident
  sudo levee agent notify add pager --command /usr/local/sbin/page`,
		Args: cli.WantArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			t.Name = args[0]
			for way, to := range map[notify.Way]string{notify.Webhook: webhook, notify.Mail: mail,
				notify.Command: command} {
				if to == "" {
					continue
				}
				if t.Way != "" {
					return cli.Usagef(cmd, "say one of --webhook, --mail and --command")
				}
				t.Way, t.To = way, to
			}
			if t.Way != notify.Mail && (t.Server != "" || t.From != "") {
				return cli.Usagef(cmd, "--smtp and --sender are for --mail")
			}
			if t.On, err = notify.ParseKinds(on); err != nil {
				return cli.Usagef(cmd, "--on: %v", err)
			}
			if t.Limit, err = notify.ParseLimit(limit); err != nil {
				return cli.Usagef(cmd, "--limit: %v", err)
			}
			if t.Way == notify.Webhook {
				t.Secret = notify.NewSecret()
			}
			if err := t.Check(); err != nil {
				return cli.Usagef(cmd, "%v", err)
			}
			if err := e.Privileged(); err != nil {
				return err
			}
			if err := notify.Put(client.Notifications(), t); err != nil {
				return err
			}
			if t.Secret != "" {
				fmt.Fprintln(e.Stdout, t.Secret)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&webhook, "webhook", "", "POST JSON there")
	cmd.Flags().StringVar(&mail, "mail", "", "write to this address")
	cmd.Flags().StringVar(&command, "command", "", "run this program")
	cmd.Flags().StringVar(&t.Server, "smtp", "", "server for --mail: HOST:PORT")
	cmd.Flags().StringVar(&t.From, "sender", "", "sender of --mail (default: levee@ this machine)")
	cmd.Flags().StringVar(&on, "on", "incident,alarm", "kinds of events")
	cmd.Flags().StringVar(&limit, "limit", "10/h", "messages in a second, minute, hour or day")
	return cmd
}

// NotifyReport is the object of `levee agent notify list --json`.
type NotifyReport struct {
	Targets []notify.Status `json:"targets"`
}

func newNotifyList(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List targets, and what became of their messages",
		Long: `List targets with what became of their messages since the agent began; without an agent all
counts are 0. Secrets, and paths of URLs, are not shown.`,
		Example: "  sudo levee agent notify list --json",
		Args:    cli.WantArgs(),
		RunE: func(*cobra.Command, []string) error {
			rep, err := e.notifications()
			if err != nil {
				return err
			}
			if asJSON {
				return e.PrintJSON(rep)
			}
			table := cli.NewTable("NAME WAY TO ON LIMIT SENT FAILED HELD LOST", "<", "<", "<", "<",
				"<", ">", ">", ">", ">")
			for _, s := range rep.Targets {
				table.Row(s.Name, string(s.Way), s.To, strings.Join(s.On, ","), s.Limit, s.Sent,
					s.Failed, s.Held, s.Lost)
			}
			table.Print(e.Stdout, "")
			for _, s := range rep.Targets {
				if s.Error != "" {
					fmt.Fprintf(e.Stdout, "%s: %s\n", s.Name, s.Error)
				}
			}
			return nil
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// notifications are the targets, of the agent that runs or of the file.
func (e *env) notifications() (*NotifyReport, error) {
	if err := e.Privileged(); err != nil {
		return nil, err
	}
	all, err := notify.Read(client.Notifications())
	if err != nil {
		return nil, err
	}
	rep := &NotifyReport{Targets: []notify.Status{}}
	if client.Ask("GET", "notifications", nil, rep) == nil && len(rep.Targets) == len(all) {
		return rep, nil
	}
	rep.Targets = rep.Targets[:0]
	for i := range all {
		rep.Targets = append(rep.Targets, all[i].Status())
	}
	return rep, nil
}

func newNotifyTest(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "test NAME",
		Short: "Send one message to a target, and say what becomes of it",
		Long: "Send one message to a target at once, whether an agent runs or not. Limits do " +
			"not count it.",
		Example: "  sudo levee agent notify test ops",
		Args:    cli.WantArgs("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := e.Privileged(); err != nil {
				return err
			}
			all, err := notify.Read(client.Notifications())
			if err != nil {
				return err
			}
			at := slices.IndexFunc(all, func(t notify.Target) bool { return t.Name == args[0] })
			if at < 0 {
				return notify.ErrNoTarget
			}
			if err := all[at].Send(context.Background(), notify.NewTest()); err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "%s was told\n", all[at].Name)
			return nil
		},
	}
}

func newNotifyRemove(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a target",
		Long:    "Remove a target. What its limit held back is not told any more.",
		Example: "  sudo levee agent notify remove ops",
		Args:    cli.WantArgs("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := e.Privileged(); err != nil {
				return err
			}
			return notify.Remove(client.Notifications(), args[0])
		},
	}
}
