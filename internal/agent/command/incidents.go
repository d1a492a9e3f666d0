package command

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent/client"
	"levee/internal/agent/defend"
	"levee/internal/agent/incident"
	"levee/internal/agent/part"
	"levee/internal/cli"
	"levee/internal/lang/diag"
)

func newAgentIncidents(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "incidents [ID]",
		Short: "Show floods that were seen, and what was done about them",
		Long: `Show the floods that "detect" statements of policies have seen, the newest first: when they began
and ended, what was seen, which rules were put into force and when, what these cost good traffic by
prediction and as measured afterwards, and when they were taken back. Where a detector does not look,
that is said; where none were seen, since when detectors have looked. It works whether an agent runs
or not.`,
		Example: `  sudo levee agent incidents
  sudo levee agent incidents 7 --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r defend.Report
			err := client.Ask(http.MethodGet, "incidents", nil, &r)
			alone := errors.Is(err, client.ErrNone)
			if alone {
				r.Watched = []part.Status{}
				r.Incidents, err = client.Incidents()
			}
			if err != nil {
				return err
			}
			if len(args) == 1 {
				r.Incidents = onlyIncident(r.Incidents, args[0])
				if len(r.Incidents) == 0 {
					return fmt.Errorf("there is no incident %s: levee agent incidents lists them",
						diag.Quoted(args[0]))
				}
			}
			if asJSON {
				return e.PrintJSON(r)
			}
			out := e.Stdout.Screen()
			for i := range r.Incidents {
				printIncident(out, &r.Incidents[i], len(args) == 1)
			}
			switch {
			case len(args) == 1:
			case alone:
				fmt.Fprintf(out, "nobody looks for floods: %v\n", client.ErrNone)
			default:
				printWatched(out, r.Watched, len(r.Incidents) > 0)
			}
			return out.Flush()
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

func onlyIncident(all []incident.Incident, id string) []incident.Incident {
	for _, i := range all {
		if i.ID == id {
			return []incident.Incident{i}
		}
	}
	return []incident.Incident{}
}

// printIncident prints one, with its rules and times where it is asked for alone.
func printIncident(out io.Writer, i *incident.Incident, whole bool) {
	fmt.Fprintf(out, "%-4s  %s  %-8s  %s: %s\n", i.ID, i.Began.Local().Format(time.DateTime),
		i.State, diag.Quoted(i.Dev), i.Sentence)
	if !whole {
		return
	}
	at := func(name string, t *time.Time) {
		if t != nil {
			fmt.Fprintf(out, "  %-9s %s, %s after it began\n", name,
				t.Local().Format("15:04:05.000"), t.Sub(i.Began).Round(time.Millisecond))
		}
	}
	fmt.Fprintf(out, "  before    %.0f packets/s, %.0f bit/s\n", i.Before.Packets,
		i.Before.Bits)
	at("detected", &i.Detected)
	for _, s := range i.Steps {
		fmt.Fprintf(out, "            %s, %s after it began; %.0f ms of a core\n", s.What,
			s.At.Sub(i.Began).Round(time.Millisecond), 1e3*(s.Core-i.Steps[0].Core))
	}
	at("acted", i.Acted)
	at("ended", i.Ended)
	at("closed", i.Closed)
	for k := range i.Rules {
		r := &i.Rules[k]
		fmt.Fprintf(out, "  %-9s %s\n", r.State, r.Rule)
		fmt.Fprintf(out, "            dropped %s; coverage %.4g %%; collateral "+
			"%.3g %%, at most %.3g %% by 95 %% confidence", cli.Plural(r.Packets, "packet"),
			100*r.Coverage,
			100*r.Predicted,
			100*r.AtMost)
		if r.Measured != nil {
			fmt.Fprintf(out, "; measured %.3g %%", 100**r.Measured)
		}
		fmt.Fprintln(out)
		if r.Why != "" {
			fmt.Fprintf(out, "            %s\n", diag.Escaped(r.Why))
		}
	}
	for _, n := range i.Notes {
		fmt.Fprintf(out, "  note      %s\n", diag.Escaped(n))
	}
}

func newAgentUndo(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "undo ID",
		Short: "Take back what was done about a flood, or a live rule",
		Long: `Take the live rules of an incident out of force. The policy is as it was before, and nothing is
done about such a flood to the same destination for an hour. Or take the live rule of that ID out of
force, whoever has put it there: levee agent rules list names them. It works whether an agent runs or not;
without one all live rules of the interface are taken back.`,
		Example: `  sudo levee agent undo 7
  sudo levee agent undo live-3`,
		Args: cli.WantArgs("ID"),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := strconv.Atoi(args[0]); err != nil {
				return e.undoRule(args[0], asJSON)
			}
			var i incident.Incident
			err := client.Ask(http.MethodPost, "incidents/"+url.PathEscape(args[0])+"/undo",
				struct{}{}, &i)
			if errors.Is(err, client.ErrNone) {
				i, err = e.undoAlone(args[0])
			}
			return e.printDone(i, err, asJSON)
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

func (e *env) undoAlone(id string) (incident.Incident, error) {
	if err := e.Privileged(); err != nil {
		return incident.Incident{}, err
	}
	store := incident.OpenStore(client.IncidentsFile())
	if store.Damaged != nil {
		return incident.Incident{}, client.Damaged(store)
	}
	ctx, stop := e.Signals()
	defer stop()
	return defend.UndoAlone(ctx, store, id)
}

func newAgentApply(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "apply ID",
		Short: "Put the rules that were proposed against a flood into force",
		Long: `Put the rules of an incident that a detector with the mode propose has found into force, while the
flood goes on. They are taken back as those of the mode enforce are.`,
		Example: "  sudo levee agent apply 7",
		Args:    cli.WantArgs("ID"),
		RunE: func(_ *cobra.Command, args []string) error {
			var i incident.Incident
			err := client.Ask(http.MethodPost, "incidents/"+url.PathEscape(args[0])+"/apply",
				struct{}{}, &i)
			return e.printDone(i, err, asJSON)
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// printDone prints an incident of which something was done.
func (e *env) printDone(i incident.Incident, err error, asJSON bool) error {
	switch {
	case err != nil:
		return err
	case asJSON:
		return e.PrintJSON(i)
	}
	out := e.Stdout.Screen()
	printIncident(out, &i, true)
	return out.Flush()
}
