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
	// Before are the rules of the policy before which they stand, one each; "" for those in no
	// such place.
	Before []string `json:"-"`
	// until they end by themselves
	LeaseSeconds float64 `json:"lease_seconds"`
}

// LiveRule is one of them.
type LiveRule struct{ Rule, Origin, Before string }

// Each returns the rules one by one.
func (l *LiveRules) Each() []LiveRule {
	at := func(of []string, i int) string {
		if i < len(of) {
			return of[i]
		}
		return "" // an older levee has noted none
	}
	out := make([]LiveRule, len(l.Rules))
	for i, rule := range l.Rules {
		out[i] = LiveRule{rule, at(l.Origins, i), at(l.Before, i)}
	}
	return out
}

// Of names the origins of the rules, " (A, B)"; "" where that was not noted.
func (l *LiveRules) Of() string {
	if len(l.Origins) == 0 {
		return ""
	}
	all := slices.Sorted(slices.Values(l.Origins))
	return " (" + strings.Join(slices.Compact(all), ", ") + ")"
}

// TellLive returns the live rules of an interface, nil without any.
func TellLive(s *store.Store, a *attach.Attachment) (*LiveRules, error) {
	g := a.Trial()
	if g == nil || !g.IsLive() {
		return nil, nil
	}
	left, err := s.TimeLeft(g.Deadline)
	return &LiveRules{g.Live, g.LiveOf, g.LiveBefore, left.Seconds()}, err
}
