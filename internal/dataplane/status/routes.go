package status

import (
	"context"
	"net/http"

	"levee/internal/agent/api"
	"levee/internal/openmetrics"
)

// Routes returns the routes of the agent's API that show policies in force.
func Routes() []api.Route {
	return []api.Route{api.Get("/api/v1/interfaces", api.Viewer,
		"What runs where: hook, policy, rules with their counters, sets, limits.",
		func(ctx context.Context, q *interfaceQuery) (*Report, error) {
			rep, _, err := Look(ctx, q.Dev, false)
			if q.Dev != "" && err != nil {
				err = api.Refuse(http.StatusNotFound, "%v", err)
			}
			return rep, err
		})}
}

type interfaceQuery struct {
	Dev string `query:"dev" maxLength:"64" doc:"Only this interface."`
}

// Here returns the metrics of the data plane in this network namespace.
func Here(ctx context.Context) ([]openmetrics.Family, error) {
	rep, _, err := Look(ctx, "", false)
	if err != nil {
		return nil, err
	}
	return Metrics(rep, false), nil
}
