package inspect

import (
	"levee/internal/dataplane/store"

	"levee/internal/dataplane/attach"
)

// LiveRules are those of an interface.
type LiveRules struct {
	Rules []string `json:"rules"`
	// until they end by themselves
	LeaseSeconds float64 `json:"lease_seconds"`
}

// TellLive is nil where there are none.
func TellLive(s *store.Store, a *attach.Attachment) (*LiveRules, error) {
	g := a.Trial()
	if g == nil || !g.IsLive() {
		return nil, nil
	}
	left, err := s.TimeLeft(g.Deadline)
	return &LiveRules{g.Live, left.Seconds()}, err
}
