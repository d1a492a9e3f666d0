package command

import (
	"context"
	"fmt"
	"net/http"
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
	var on, limit string
	var t notify.Target
	to := map[string]*string{} // by way
	options := map[string]*string{}
	var says []string
	for _, w := range notify.Ways {
		to[w.Name] = new(string)
		says = append(says, w.Says)
		for _, o := range w.Options {
			options[o.Flag] = new(string)
		}
	}
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a target, or replace the one of its name",
		Long: strings.Join(cli.Wrap("Add a target, or replace the one of its name. "+
			strings.Join(says, " "), 100), "\n") + `

Kinds of events are incident, alarm, policy (another is in force), refused (an entry that nobody may
be) and withdrawn.`,
		Example: `  sudo levee agent notify add ops --webhook https://hooks.example/levee --limit 10/h
  sudo levee agent notify add night --mail ops@example.net --smtp 127.0.0.1:25 --on incident
  sudo levee agent notify add pager --command /usr/local/sbin/page`,
		Args: cli.WantArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			t.Name = args[0]
			if err := place(cmd, &t, to, options); err != nil {
				return err
			}
			if t.On, err = notify.ParseKinds(on); err != nil {
				return cli.Usagef(cmd, "--on: %v", err)
			}
			if t.Limit, err = notify.ParseLimit(limit); err != nil {
				return cli.Usagef(cmd, "--limit: %v", err)
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
			if made := t.Made(); made != "" {
				fmt.Fprintln(e.Stdout, made)
			}
			return nil
		},
	}
	for _, w := range notify.Ways {
		cmd.Flags().StringVar(to[w.Name], w.Name, "", w.Usage)
	}
	for _, w := range notify.Ways {
		for _, o := range w.Options {
			cmd.Flags().StringVar(options[o.Flag], o.Flag, "", o.Usage)
		}
	}
	cmd.Flags().StringVar(&on, "on", "incident,alarm", "kinds of events")
	cmd.Flags().StringVar(&limit, "limit", "10/h", "messages in a second, minute, hour or day")
	return cmd
}

// place is the way that flags name, and where it goes.
func place(cmd *cobra.Command, t *notify.Target, to, options map[string]*string) error {
	for _, w := range notify.Ways {
		if *to[w.Name] == "" {
			continue
		}
		if t.Way != "" {
			return cli.Usagef(cmd, "say one of %s", notify.WayNames("--"))
		}
		t.Way, t.To = w.Name, *to[w.Name]
	}
	for _, w := range notify.Ways {
		for i := range w.Options {
			switch o := &w.Options[i]; {
			case *options[o.Flag] == "":
			case t.Way != w.Name:
				return cli.Usagef(cmd, "--%s is for --%s", o.Flag, w.Name)
			default:
				t.Set(o, *options[o.Flag])
			}
		}
		if t.Way == w.Name && w.Prepare != nil {
			w.Prepare(&t.Place)
		}
	}
	return nil
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
			table := cli.NewTable("NAME WAY LIMIT SENT FAILED HELD LOST ON TO", "<", "<", "<", ">",
				">", ">", ">", "<", "<")
			for _, s := range rep.Targets {
				table.Row(s.Name, s.Way, s.Limit, s.Sent, s.Failed, s.Held, s.Lost,
					strings.Join(s.On, ","), s.To)
			}
			out := e.Stdout.Screen()
			table.Print(out, "")
			for _, s := range rep.Targets {
				if s.Error != "" {
					fmt.Fprintf(out, "%s: %s\n", s.Name, s.Error)
				}
			}
			return out.Flush()
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// notifications returns the targets, of the agent that runs or of the file.
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
		Long: `Send one message to a target at once: by the agent, so that it is known to reach the target from
its unit; by this command where no agent runs, or it has not read of the target yet. Limits do not
count it; the agent sends five a minute at most.`,
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
			name := all[at].Name
			var rep NotifyReport
			known := func(s notify.Status) bool { return s.Name == name }
			if client.Ask(http.MethodGet, "notifications", nil, &rep) == nil &&
				slices.ContainsFunc(rep.Targets, known) {
				err := client.Ask(http.MethodPost, "notifications/"+name+"/test", struct{}{}, &rep)
				if err == nil {
					fmt.Fprintf(e.Stdout, "%s was told, by the agent\n", name)
				}
				return err
			}
			if err := all[at].Send(context.Background(), notify.NewTest()); err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "%s was told, by this command: no agent runs that knows it yet\n",
				name)
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
