package agent

import (
	"levee/internal/agent/api"
	"levee/internal/openmetrics"
)

// Families are all metrics of an agent, most of them without samples.
func Families() []openmetrics.Family {
	all := append((&Status{}).families(), notifications(nil), requests(nil))
	return append(all, process()...)
}

// Document is the OpenAPI document of an agent with further routes.
func Document(routes []api.Route) ([]byte, error) {
	s, err := newAgent(Options{Routes: routes}).server()
	if err != nil {
		return nil, err
	}
	return s.Document(), nil
}
