package incident

import "levee/internal/openmetrics"

// Metrics returns the metrics of incidents, for each state a number.
func Metrics(all []Incident) []openmetrics.Family {
	states := map[string]int{}
	rules := 0
	for i := range all {
		states[all[i].State]++
		for k := range all[i].Rules {
			if all[i].Rules[k].IsLive() {
				rules++
			}
		}
	}
	of := openmetrics.Family{Name: "levee_incidents", Unit: "incidents",
		Help: "Incidents that are kept, by their state."}
	for _, state := range []string{Open, Ended, Undone, Proposed, Observed} {
		of.Samples = append(of.Samples, openmetrics.Sample{Value: float64(states[state]),
			Labels: []openmetrics.Label{{Name: "state", Value: state}}})
	}
	return []openmetrics.Family{of, {Name: "levee_incident_live_rules", Unit: "rules",
		Help:    "Rules against floods that are in force.",
		Samples: []openmetrics.Sample{{Value: float64(rules)}}}}
}
