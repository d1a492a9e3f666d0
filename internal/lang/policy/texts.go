package policy

import (
	"fmt"
	"strconv"

	"levee/internal/lang/field"
)

// Texts are the elements of a set as they stand in a list.
func (s *Set) Texts() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, p := range s.Prefixes {
			if !yield(prefixText(p)) {
				return
			}
		}
		for _, r := range s.Ports {
			if !yield(portsText(r)) {
				return
			}
		}
		for _, v := range s.Services {
			if !yield(v.String()) {
				return
			}
		}
		for _, e := range s.Endpoints {
			if !yield(e.String()) {
				return
			}
		}
	}
}

func portsText(r field.Range) string {
	if r.Lo == r.Hi {
		return strconv.FormatUint(r.Lo, 10)
	}
	return fmt.Sprintf("%d-%d", r.Lo, r.Hi)
}
