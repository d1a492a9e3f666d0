package ir

import (
	"cmp"
	"slices"

	"levee/internal/lang/policy"
)

// lowerInners lists what the matches on packets within tunnels ask in each class of such a packet.
func lowerInners(p *policy.Policy, w *work) []InnerList {
	if len(p.Inners) == 0 {
		return nil
	}
	l := &lowering{trace: &reach{work: w}, ordered: true}
	l.begin()
	for i, in := range p.Inners {
		l.add(i, &Action{Verdict: NoVerdict}, in.Match)
	}
	var out []InnerList
	for _, list := range l.lists {
		out = append(out, InnerList{list.classes, list.rules})
	}
	slices.SortFunc(out, func(a, b InnerList) int {
		return cmp.Compare(a.Classes[0].Index(), b.Classes[0].Index())
	})
	return out
}
