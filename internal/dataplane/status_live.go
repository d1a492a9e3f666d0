package dataplane

// LiveRules are those of an interface.
type LiveRules struct {
	Rules []string `json:"rules"`
	// until they end by themselves
	LeaseSeconds float64 `json:"lease_seconds"`
}

// tellLive is nil where there are none.
func (s *store) tellLive(a *attachment) (*LiveRules, error) {
	g := a.trial()
	if g == nil || !g.isLive() {
		return nil, nil
	}
	left, err := s.timeLeft(g.Deadline)
	return &LiveRules{g.Live, left.Seconds()}, err
}
