package defend

import (
	"maps"
	"slices"
	"strings"

	"levee/internal/openmetrics"
)

// Metrics returns how many live rules each origin has on each interface.
func Metrics(all []LiveRule) openmetrics.Family {
	type of struct{ dev, origin string }
	counts := map[of]int{}
	for _, r := range all {
		counts[of{r.Dev, r.Origin}]++
	}
	out := openmetrics.Family{Name: "levee_live_rules", Unit: "rules",
		Help: "Rules in force besides those of the policy, by whom they are of."}
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b of) int {
		return strings.Compare(a.dev+" "+a.origin, b.dev+" "+b.origin)
	}) {
		out.Samples = append(out.Samples, openmetrics.Sample{Value: float64(counts[k]),
			Labels: []openmetrics.Label{{Name: "dev", Value: k.dev},
				{Name: "origin", Value: k.origin}}})
	}
	return out
}
