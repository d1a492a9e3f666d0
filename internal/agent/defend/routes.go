package defend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"levee/internal/agent/api"
	"levee/internal/agent/evidence"
	"levee/internal/agent/incident"
	"levee/internal/agent/part"
	"levee/internal/dataplane"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// Report are incidents, the newest first.
type Report struct {
	Incidents []incident.Incident `json:"incidents"`
	// Watched says where detectors look for floods, since when, and where they do not.
	Watched []part.Status `json:"watched"`
}

// watched returns the parts without which no flood is seen.
func (m *Manager) watched() []part.Status {
	return slices.DeleteFunc(m.Parts.List(), func(s part.Status) bool {
		return s.Kind != part.Detector && s.Kind != part.LiveRules &&
			(s.Kind != part.Policy || s.State == part.Works)
	})
}

// ID names an incident.
type ID struct {
	ID string `path:"id" maxLength:"20" doc:"The incident."`
}

type none struct{}

// Routes returns the routes about incidents.
func (m *Manager) Routes() []api.Route {
	one := func(do func(context.Context, string) (incident.Incident, error)) func(context.Context,
		*ID) (*incident.Incident, error) {
		return func(ctx context.Context, in *ID) (*incident.Incident, error) {
			i, err := do(ctx, in.ID)
			if err != nil {
				status := http.StatusUnprocessableEntity
				if _, ok := m.Incidents.Get(in.ID); !ok {
					status = http.StatusNotFound
				} else if errors.Is(err, ErrOver) {
					status = http.StatusConflict
				}
				return nil, api.Refuse(status, "%v", err)
			}
			return &i, nil
		}
	}
	kept := m.Evidence
	if kept == nil {
		kept = evidence.Open("")
	}
	return append(kept.Routes(m.facts),
		api.Get("/api/v1/incidents", api.Viewer, "Floods that were seen, what was done about them "+
			"and what it cost, the newest first.",
			func(context.Context, *none) (*Report, error) {
				return &Report{m.Incidents.List(), m.watched()}, nil
			}),
		api.Get("/api/v1/incidents/{id}", api.Viewer, "One incident.",
			one(func(_ context.Context, id string) (incident.Incident, error) {
				i, ok := m.Incidents.Get(id)
				if !ok {
					return i, fmt.Errorf("there is no incident %.20q: GET /api/v1/incidents lists "+
						"them", id)
				}
				return i, nil
			})),
		api.Post("/api/v1/incidents/{id}/undo", api.Operator,
			"Take the rules of an incident back. They stay so for an hour.", one(m.Undo)),
		api.Post("/api/v1/incidents/{id}/apply", api.Operator,
			"Put the rules that were proposed for an incident into force.", one(m.Apply)),
		api.Get("/api/v1/rules", api.Viewer,
			"The live rules, with who they are of, in the order in which they are asked.",
			func(context.Context, *none) (*RulesReport, error) {
				return &RulesReport{m.Rules()}, nil
			}),
		api.Post("/api/v1/rules", api.Operator,
			"Put a live rule into force for a time, under the name of the token.",
			func(ctx context.Context, in *RuleInput) (*LiveRule, error) {
				lease, err := literal.ParseLease(in.Body.Lease)
				if err != nil {
					return nil, api.Refuse(http.StatusUnprocessableEntity, "body.lease: %v", err)
				}
				r, err := m.Write(ctx, origin(ctx), in.Body.Dev, in.Body.Rule, lease)
				return &r, refusal(err)
			}),
		api.Post("/api/v1/rules/{id}/withdraw", api.Operator,
			"Take a live rule of this token back.",
			func(ctx context.Context, in *RuleID) (*LiveRule, error) {
				r, err := m.Withdraw(ctx, origin(ctx), in.ID)
				return &r, refusal(err)
			}),
		api.Post("/api/v1/rules/{id}/undo", api.Operator,
			"Take a live rule back, whoever it is of: that of a detector with all rules of its "+
				"incident.",
			func(ctx context.Context, in *RuleID) (*LiveRule, error) {
				r, err := m.Withdraw(ctx, "", in.ID)
				return &r, refusal(err)
			}),
	)
}

// RulesReport are live rules.
type RulesReport struct {
	Rules []LiveRule `json:"rules"`
}

// RuleInput is a rule that is to come into force.
type RuleInput struct {
	Body struct {
		Dev   string `json:"dev" minLength:"1" maxLength:"64" doc:"The interface."`
		Rule  string `json:"rule" minLength:"1" maxLength:"1000" doc:"As in a policy, without a label; it drops or limits."`
		Lease string `json:"lease" minLength:"1" maxLength:"32" doc:"How long, such as 10m; 1s to 7d."`
	}
}

// RuleID names a live rule.
type RuleID struct {
	ID string `path:"id" maxLength:"64" doc:"The live rule."`
}

// origin returns the origin of a caller's rules.
func origin(ctx context.Context) string {
	return api.CallerOf(ctx).Origin(policy.CommandOrigin)
}

// refusal returns an error about a live rule, as the API answers it.
func refusal(err error) error {
	status := http.StatusUnprocessableEntity
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoRule), errors.Is(err, errUnwatched):
		status = http.StatusNotFound
	case errors.Is(err, errNotYours):
		status = http.StatusForbidden
	case errors.Is(err, errFull), errors.Is(err, errRenamed), errors.Is(err, dataplane.ErrOnTrial),
		errors.Is(err, dataplane.ErrOtherPolicy), errors.Is(err, errGone):
		status = http.StatusConflict
	}
	return api.Refuse(status, "%v", err)
}
