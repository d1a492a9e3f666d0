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
)

// Report are incidents, the newest first.
type Report struct {
	Incidents []incident.Incident `json:"incidents"`
	// Watched says where detectors look for floods, since when, and where they do not.
	Watched []part.Status `json:"watched"`
}

// watched are the parts without which no flood is seen.
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

// Routes are those about incidents.
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
	)
}
