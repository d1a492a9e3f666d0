package main

import (
	"context"
	"net/http"

	"levee/internal/agent/api"
	"levee/internal/openmetrics"
)

// agentRoutes are the routes of the agent's API that show what commands show.
func agentRoutes() []api.Route {
	return []api.Route{api.Get("/api/v1/interfaces", api.Viewer,
		"What runs where: hook, policy, rules with their counters, sets, limits.",
		func(_ context.Context, q *interfaceQuery) (*statusReport, error) {
			rep, _, err := lookAtStatus(&statusFlags{dev: q.Dev})
			if q.Dev != "" && err != nil {
				err = api.Refuse(http.StatusNotFound, "%v", err)
			}
			return rep, err
		})}
}

type interfaceQuery struct {
	Dev string `query:"dev" maxLength:"64" doc:"Only this interface."`
}

// agentMetrics are the metrics of the data plane in this network namespace.
func agentMetrics(context.Context) ([]openmetrics.Family, error) {
	rep, _, err := lookAtStatus(&statusFlags{})
	if err != nil {
		return nil, err
	}
	return metricsOf(rep, false), nil
}
