package defend

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/signature"
	"levee/internal/filter/ir"
	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
	"levee/internal/packet"
)

// rulesOf gives a live rule its meaning. Its sources are not those that its detector keeps.
func rulesOf(r *incident.Rule, d *policy.Detect) (*policy.Rule, error) {
	text := r.Rule
	if d != nil && d.KeepText != "" { // it is part of the text, and means what the policy says
		if at := strings.LastIndex(text, keepTerm(d)); at >= 0 { // terms before it may say the same
			text = text[:at] + text[at+len(keepTerm(d)):]
		}
	}
	p, ds := resolve.Parse("live", []byte(text+"\ndefault pass\n"), nil)
	if p == nil || len(p.Rules) != 1 {
		return nil, fmt.Errorf("the rule %q is not understood: %v", r.Rule, ds)
	}
	rule := p.Rules[0]
	rule.Text = r.Rule
	rule.Pos = policy.Pos{} // it stands in no line of the policy
	if d != nil && len(d.Keep) > 0 {
		rule.Match = append(slices.Clone(rule.Match),
			policy.Term{Field: field.SrcAddr, Not: true, Prefixes: d.Keep})
	}
	return rule, nil
}

// keepTerm returns the part of a rule's text about whom it keeps.
func keepTerm(d *policy.Detect) string { return " not from " + d.KeepText }

// behindTerms is found where the terms of a rule end.
var behindTerms = regexp.MustCompile(" rate | after |$")

// written returns the text of a rule that a proposal made, with its detector's term and its label.
func written(text string, d *policy.Detect, label string) string {
	body, _, _ := strings.Cut(text, ` as "`)
	body = strings.TrimSpace(body)
	if d.KeepText != "" {
		at := behindTerms.FindStringIndex(body)[0]
		body = body[:at] + keepTerm(d) + body[at:]
	}
	return body + ` as "` + label + `"`
}

// compose returns a policy with live rules in it, each where it should stand. Those of writers come
// first, in their order.
func compose(p *policy.Policy, rules []episode.Live) (*policy.Policy, error) {
	q := *p
	q.Rules = slices.Clone(p.Rules)
	first := 0
	for _, l := range rules {
		rule, err := rulesOf(&l.Rule, l.Of)
		if err != nil {
			return nil, err
		}
		at := len(q.Rules)
		switch {
		case l.Of == nil:
			at = first
			first++
		case l.Rule.Before != "":
			at = max(0, slices.IndexFunc(q.Rules, func(o *policy.Rule) bool {
				return o.Text == l.Rule.Before
			}))
		}
		q.Rules = slices.Insert(q.Rules, at, rule)
	}
	return &q, nil
}

// newerThan are the rules of a policy that is composed of another one and of live rules.
func newerThan(base *policy.Policy) signature.Newer {
	old := map[*policy.Rule]bool{}
	for _, r := range base.Rules {
		old[r] = true
	}
	return func(r *policy.Rule) bool { return !old[r] }
}

// harm returns the share of good packets that a live rule drops in a policy which is composed of
// that in force and of live rules.
func harm(base, p *policy.Policy, label string, s *signature.Sample) float64 {
	at := slices.IndexFunc(p.Rules, func(r *policy.Rule) bool { return r.Label == label })
	if at < 0 || s.Len() == 0 {
		return 0
	}
	slot, n := p.RuleSlot(at), 0
	s.Judge(p, newerThan(base), 0, func(_ []byte, by int, _ action.Action) {
		if by == slot {
			n++
		}
	})
	return float64(n) / float64(s.Len())
}

// samples returns, by label of a rule that drops, how many packets of each source the sample of
// good traffic has, and how many of them the rule would drop.
func (j *job) samples(rules []incident.Rule) map[string]sampled {
	out := map[string]sampled{}
	live := slices.Clone(j.Live)
	for _, r := range rules {
		if live = append(live, episode.Live{Rule: r, Of: j.Of}); r.Action == "drop" {
			out[r.Label] = sampled{}
		}
	}
	p, err := compose(j.base, live)
	if err != nil || len(out) == 0 {
		return nil
	}
	labels := map[int]string{}
	for i, r := range p.Rules {
		labels[p.RuleSlot(i)] = r.Label
	}
	var pkt packet.Packet
	j.good.Judge(p, newerThan(j.base), mostTold, func(b []byte, slot int, _ action.Action) {
		pkt = packet.Packet{}
		j.link.Decode(b, &pkt)
		by := labels[slot]
		for label, of := range out {
			s := of[pkt.Src]
			if s.packets++; label == by {
				s.dropped++
			}
			of[pkt.Src] = s
		}
	})
	return out
}

// mostTold is the number of packets of a sample that say what sources send: so many show that a
// rule drops none to less than a twentieth of a percent.
const mostTold = 8000

// fits says whether `levee check` warns of no more with live rules in a policy than without. That
// fragments pass is meant where the default passes them.
func fits(base, with *policy.Policy) bool {
	before := len(ir.Build(base).Findings)
	if len(ir.Build(with).Findings) <= before {
		return true
	}
	tail, _ := resolve.Parse("tail", []byte("pass fragments\ndefault pass\n"), nil)
	q := *with
	q.Rules = append(slices.Clone(with.Rules), tail.Rules...)
	return base.Default.Action == action.Pass && len(ir.Build(&q).Findings) <= before
}

// rateText returns a rate as a rule says it, in whole packets a second.
func rateText(rate float64) string {
	return fmt.Sprintf(" rate %d/s", int(math.Ceil(max(1, rate))))
}

// valid says whether a text is a rule, in the layout of `levee fmt`.
func valid(text string) (string, bool) {
	p, _ := resolve.Parse("live", []byte(text+"\ndefault pass\n"), nil)
	if p == nil || len(p.Rules) != 1 {
		return "", false
	}
	f, _ := syntax.Parse("live", []byte(text+"\n"))
	return strings.TrimSpace(string(ast.Format(f))), true
}
