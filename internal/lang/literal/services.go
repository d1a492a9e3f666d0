package literal

import (
	"slices"

	"levee/internal/lang/policy"
)

func mergeServices(ss []policy.Service) []policy.Service {
	slices.SortFunc(ss, func(a, b policy.Service) int {
		if a.Proto != b.Proto {
			return int(a.Proto) - int(b.Proto)
		}
		return int(a.Lo) - int(b.Lo)
	})
	out := ss[:0]
	for _, s := range ss {
		if n := len(out); n > 0 && out[n-1].Joins(s) {
			out[n-1].Hi = max(out[n-1].Hi, s.Hi)
			continue
		}
		out = append(out, s)
	}
	return slices.Clip(out)
}
