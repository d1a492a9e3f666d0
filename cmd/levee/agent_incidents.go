package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent/defend"
	"levee/internal/agent/evidence"
	"levee/internal/agent/history"
	"levee/internal/agent/incident"
	agentlive "levee/internal/agent/live"
	"levee/internal/agent/part"
	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/guard"
	"levee/internal/host/session"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
)

// agentIncidents is the file of incidents.
func agentIncidents() string { return agentFile("incidents.json") }

// agentBaselines is the file of what detectors have learned.
func agentBaselines() string { return agentFile("baselines.json") }

// defender looks for floods as the policies in force say, and tells of them. Its samples are told
// to sampled, and what was damaged to alarm.
func (e *env) defender(sampled *history.Sampled, sight *defend.Sight, events *agentlive.Hub,
	parts *part.Register, alarm func(string)) *defend.Manager {
	store := incident.OpenStore(agentIncidents())
	if store.Damaged != nil {
		alarm(fmt.Sprintf("the incidents before are lost: %s was damaged (%v), and is put aside "+
			"as %s", store.Path(), store.Damaged, store.Aside()))
	}
	store.Changed = func(i incident.Incident) {
		events.Publish(agentlive.Event{Kind: agentlive.Incident, Incident: i.ID, Text: i.Sentence})
	}
	baselines := defend.OpenBaselines(agentBaselines())
	if baselines.Damaged != nil {
		alarm(fmt.Sprintf("what is usual has to be learned again: %s was damaged (%v), and is put "+
			"aside as %s", baselines.Path(), baselines.Damaged, baselines.Aside()))
	}
	return defend.NewManager(defend.ManagerOptions{Incidents: store, Sampled: sampled,
		Sight: sight, Evidence: evidence.Open(agentFile("packets")), Baselines: baselines,
		Peers: defend.NewPeers(session.Peers), Aside: defend.NewAside(parts), Parts: parts,
		Log: e.Sayf, Policy: e.policyOn, Allowed: e.allowedLive})
}

// defend looks for floods until it is told to end. Live rules stay in force for their lease.
func (e *env) defend(ctx context.Context, stop func(), floods *defend.Manager) (end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		floods.Run(ctx)
	}()
	return func() { stop(); <-done }
}

// policyOn is the operator's policy in force on an interface.
func (e *env) policyOn(ctx context.Context, dev string) (*policy.Policy, error) {
	shown, _, err := dataplane.Show(ctx, dev)
	if err != nil {
		return nil, err
	}
	p, ds := shown.Parse()
	if p == nil {
		return nil, fmt.Errorf("the policy on %s cannot be read again: %s", dev, ds[0].Message)
	}
	return p, nil
}

// allowedLive refuses live rules that would cut a session of this machine.
func (e *env) allowedLive(_ context.Context, dev string, p *policy.Policy) error {
	sessions, err := e.sessions(dev)
	if err != nil || len(sessions) == 0 {
		return err
	}
	link, err := e.link(dev)
	if err != nil {
		return err
	}
	sessions = e.alive(dev, link, sessions)
	entries, err := e.entries(dev, p)
	if err != nil {
		return err
	}
	return guard.Check(p, link, sessions, entries)
}

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
			err := askAgent(http.MethodGet, "incidents", nil, &r)
			alone := errors.Is(err, errNoAgent)
			if alone {
				r.Watched = []part.Status{}
				r.Incidents, err = incidentsAlone()
			}
			if err != nil {
				return err
			}
			if len(args) == 1 {
				r.Incidents = onlyIncident(r.Incidents, args[0])
				if len(r.Incidents) == 0 {
					return fmt.Errorf("there is no incident %s: levee agent incidents lists them",
						syntax.Quoted(args[0]))
				}
			}
			if asJSON {
				return e.PrintJSON(r)
			}
			for i := range r.Incidents {
				e.printIncident(&r.Incidents[i], len(args) == 1)
			}
			switch {
			case len(args) == 1:
			case alone:
				fmt.Fprintf(e.Stdout, "nobody looks for floods: %v\n", errNoAgent)
			default:
				printWatched(e.Stdout, r.Watched, len(r.Incidents) > 0)
			}
			return nil
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// incidentsAlone reads incidents where no agent runs.
func incidentsAlone() ([]incident.Incident, error) {
	if _, err := os.Stat(agentIncidents()); err != nil {
		return []incident.Incident{}, nil
	}
	store := incident.OpenStore(agentIncidents())
	if store.Damaged != nil {
		return nil, fmt.Errorf("%s is damaged: %w", store.Path(), store.Damaged)
	}
	return store.List(), nil
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
func (e *env) printIncident(i *incident.Incident, whole bool) {
	fmt.Fprintf(e.Stdout, "%-4s  %s  %-8s  %s: %s\n", i.ID, i.Began.Local().Format(time.DateTime),
		i.State, syntax.Quoted(i.Dev), i.Sentence)
	if !whole {
		return
	}
	at := func(name string, t *time.Time) {
		if t != nil {
			fmt.Fprintf(e.Stdout, "  %-9s %s, %s after it began\n", name,
				t.Local().Format("15:04:05.000"), t.Sub(i.Began).Round(time.Millisecond))
		}
	}
	fmt.Fprintf(e.Stdout, "  before    %.0f packets/s, %.0f bit/s\n", i.Before.Packets,
		i.Before.Bits)
	at("detected", &i.Detected)
	for _, s := range i.Steps {
		fmt.Fprintf(e.Stdout, "            %s, %s after it began; %.0f ms of a core\n", s.What,
			s.At.Sub(i.Began).Round(time.Millisecond), 1e3*(s.Core-i.Steps[0].Core))
	}
	at("acted", i.Acted)
	at("ended", i.Ended)
	at("closed", i.Closed)
	for k := range i.Rules {
		r := &i.Rules[k]
		fmt.Fprintf(e.Stdout, "  %-9s %s\n", r.State, r.Rule)
		fmt.Fprintf(e.Stdout, "            dropped %d packets; coverage %.4g %%; collateral "+
			"%.3g %%, at most %.3g %% by 95 %% confidence", r.Packets, 100*r.Coverage,
			100*r.Predicted,
			100*r.AtMost)
		if r.Measured != nil {
			fmt.Fprintf(e.Stdout, "; measured %.3g %%", 100**r.Measured)
		}
		fmt.Fprintln(e.Stdout)
		if r.Why != "" {
			fmt.Fprintf(e.Stdout, "            %s\n", syntax.Escaped(r.Why))
		}
	}
	for _, n := range i.Notes {
		fmt.Fprintf(e.Stdout, "  note      %s\n", syntax.Escaped(n))
	}
}

func newAgentUndo(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "undo ID",
		Short: "Take back what was done about a flood",
		Long: `Take the live rules of an incident out of force. The policy is as it was before, and nothing is
done about such a flood to the same destination for an hour. It works whether an agent runs or not;
without one all live rules of the interface are taken back.`,
		Example: "  sudo levee agent undo 7",
		Args:    cli.WantArgs("ID"),
		RunE: func(_ *cobra.Command, args []string) error {
			var i incident.Incident
			err := askAgent(http.MethodPost, "incidents/"+url.PathEscape(args[0])+"/undo",
				struct{}{}, &i)
			if errors.Is(err, errNoAgent) {
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
	store := incident.OpenStore(agentIncidents())
	if store.Damaged != nil {
		return incident.Incident{}, fmt.Errorf("%s is damaged: %w", store.Path(), store.Damaged)
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
			err := askAgent(http.MethodPost, "incidents/"+url.PathEscape(args[0])+"/apply",
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
	e.printIncident(&i, true)
	return nil
}
