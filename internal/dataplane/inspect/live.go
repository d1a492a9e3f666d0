package inspect

import (
	"slices"
	"strings"

	"levee/internal/dataplane/store"

	"levee/internal/dataplane/attach"
)

// LiveRules are those of an interface.
type LiveRules struct {
	Rules []string `json:"rules"`
	// Origins are of whom these are, one each.
	Origins []string `json:"origins,omitempty"`
	// until they end by themselves
	LeaseSeconds float64 `json:"lease_seconds"`
}

// Of says whose rules they are, " (A, B)"; "" where that was not noted.
func (l *LiveRules) Of() string {
	if len(l.Origins) == 0 {
		return ""
	}
	all := slices.Sorted(slices.Values(l.Origins))
	return " (" + strings.Join(slices.Compact(all), ", ") + ")"
}

// TellLive is nil where there are none.
func TellLive(s *store.Store, a *attach.Attachment) (*LiveRules, error) {
	g := a.Trial()
	if g == nil || !g.IsLive() {
		return nil, nil
	}
	left, err := s.TimeLeft(g.Deadline)
	return &LiveRules{g.Live, g.LiveOf, left.Seconds()}, err
}
