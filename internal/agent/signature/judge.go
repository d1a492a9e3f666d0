package signature

import (
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Newer says of a rule of a policy whether it came after the packets of a sample were judged; nil:
// no rule did.
type Newer func(*policy.Rule) bool

// Unsaid stands for the slot by which a packet passed, where nobody knows which slot that was.
const Unsaid = "?"

// Judge tells what becomes, by a policy, of a sample or of most packets of it, evenly drawn; 0 is
// all. It tells the slot that decides, and the verdict.
//
// What passed a packet is known where AddPassed has said so. That is true of a set, a connection or
// a proof that a rule asks for, too, so nothing is looked up: only newer rules are asked, as far as
// they stand in front of what passed the packet. A slot that the policy does not have any more is
// taken for the default. Of other packets the oracle says what becomes, with dynamic sets that are
// empty.
func (s *Sample) Judge(p *policy.Policy, newer Newer, most int,
	look func(b []byte, slot int, act action.Action)) {
	places := s.all()
	if most > 0 {
		places = evenly(places, most)
	}
	s.judge(places, p, newer, func(_ int, b []byte, slot int, act action.Action) {
		look(b, slot, act)
	})
}

// judge is Judge for the packets at some places.
func (s *Sample) judge(places []int, p *policy.Policy, newer Newer,
	tell func(n int, b []byte, slot int, act action.Action)) {
	j := judging{p: p, link: s.link, of: map[string]decider{}}
	j.prepare(newer)
	s.each(places, func(n int, b []byte) {
		slot, act := j.judge(b, s.frames[places[n]].by)
		tell(n, b, slot, act)
	})
}

// judging judges packets that a policy without its newer rules has passed.
type judging struct {
	p     *policy.Policy
	link  packet.Link
	whole *oracle.Evaluator // of the policy; nil until it is asked
	newer *oracle.Evaluator // of its newer rules; nil: it has none
	first int               // slot of the first rule there
	at    []int             // where these rules stand in the policy
	of    map[string]decider
}

// decider names the slot that passes a packet, and the rule of the policy in front of which a newer
// one has to stand to decide first.
type decider struct{ slot, rule int }

func (j *judging) prepare(newer Newer) {
	for i, s := range j.p.Slots() {
		d := decider{i, i - j.p.RuleSlot(0)}
		switch s.Reason {
		case policy.ByProtect:
			d.rule = -1
		case policy.ByEssential, policy.ByDefault:
			d.rule = len(j.p.Rules)
		}
		if !s.Leaves {
			j.of[s.ID] = d
		}
	}
	q := *j.p
	q.Protect, q.Rules, q.Out, q.Essential = nil, nil, nil, false
	q.Default.Action = action.Pass
	for i, r := range j.p.Rules {
		if newer != nil && newer(r) {
			q.Rules, j.at = append(q.Rules, r), append(j.at, i)
		}
	}
	if len(q.Rules) > 0 {
		j.newer, j.first = oracle.NewOn(&q, j.link), q.RuleSlot(0)
	}
}

func (j *judging) judge(b []byte, by string) (slot int, act action.Action) {
	if by == "" {
		if j.whole == nil {
			j.whole = oracle.NewOn(j.p, j.link)
		}
		res := j.whole.Eval(b)
		return res.Slot, res.Action
	}
	d, known := j.of[by]
	if !known {
		d = decider{j.p.DefaultSlot(), len(j.p.Rules)}
	}
	if j.newer != nil {
		res := j.newer.Eval(b)
		if n := res.Slot - j.first; n >= 0 && n < len(j.at) && j.at[n] < d.rule {
			return j.p.RuleSlot(j.at[n]), res.Action
		}
	}
	return d.slot, action.Pass
}
