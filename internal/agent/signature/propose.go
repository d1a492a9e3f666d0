package signature

import (
	"errors"
	"math"
	"slices"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// Limits say what a proposal may be. The zero value allows no collateral. Rules are measured on all
// packets of the samples, whatever share the search reads.
type Limits struct {
	// Collateral is the share of the good packets that all rules together may drop.
	Collateral float64
	Least      float64 // share of the flood that each rule has to drop; 0: 1/20
	Enough     float64 // share of the flood with which no further rule is searched; 0: all
	Searched   int     // packets of each sample that the search reads; 0: 20,000
	Rules      int     // at most; 0: 8
	Terms      int     // of a rule, at most; 0: 8
	// Policy is the one in force; nil is one that passes everything. What it protects, passes as
	// essential or passes by an earlier rule stays so, and only what it passes counts as flood.
	Policy *policy.Policy
	// Newer are rules of the policy that came after packets of the samples were judged.
	Newer Newer
	// Label begins the labels of the rules; "" is "flood".
	Label string
}

// Proposal is a list of rules with what they would have dropped.
type Proposal struct {
	Rules []Rule
	Flood Judged
	Good  Judged
	// Tail is a rule to stand in front of the default, for `levee check` to know that fragments
	// are meant to pass; or "".
	Tail string
	// Sentence says what was seen and what the rules do.
	Sentence string
	// Notes say what the figures do not cover, a sentence each.
	Notes []string
}

// Rule is a rule that is proposed.
type Rule struct {
	Text   string       // canonical, as `levee fmt` prints it
	Flood  int          // packets of the flood that it drops and that passed before
	Good   int          // good packets that it drops
	Before *policy.Rule // of the policy, in front of which it stands; nil: behind all rules
	Forged bool         // the sources of what it drops look drawn at random
	seen   string       // what it drops, in words
}

// Judged is a sample with the rules in force.
type Judged struct {
	Seen    int // packets that were given
	Packets int // of them, in the sample
	LeftOut int // of those given, not looked at for the length of their headers
	Already int // of the sample, dropped without the rules
	Kept    int // of the sample, protected or essential
	Dropped int // of the sample, dropped by the rules
}

// Passed returns how many packets of the sample passed before, and were not to be kept.
func (j *Judged) Passed() int { return j.Packets - j.Already - j.Kept }

// Coverage returns the share of what passed before that the rules drop, 0 to 1.
func (j *Judged) Coverage() float64 {
	return share(j.Dropped, j.Passed())
}

// Collateral returns the share of all packets that the rules drop, 0 to 1.
func (j *Judged) Collateral() float64 {
	return share(j.Dropped, j.Packets)
}

// Highest returns the greatest share that the rules drop of such traffic, with 95 % confidence: the
// upper end of Wilson's interval, or 3/n where nothing was dropped (rule of three).
func (j *Judged) Highest() float64 { return highest(j.Dropped, j.Packets) }

// few is the smallest number of packets that a rule drops, where there are as many.
const few = 3

// fewGood is below how many good packets nothing is known of good traffic: what holds for none of
// them may hold for all others.
const fewGood = 20

// searched is the number of packets of each sample that the search looks at by default.
const searched = 20_000

// Propose finds rules for a flood. good may be nil or empty: then the rules are narrow, and the
// proposal says that their collateral is unknown. Without packets of the flood it fails.
func Propose(flood, good *Sample, l Limits) (*Proposal, error) {
	p, err := NewPair(flood, good, l)
	if err != nil {
		return nil, err
	}
	return p.Propose(l.Collateral)
}

// Pair is both samples, prepared for several searches: what these have in common is found once.
type Pair struct {
	made  work    // before it has found anything
	first []*term // that the whole of the flood suggests
}

// NewPair prepares the samples for searches within limits. It fails as Propose does.
func NewPair(flood, good *Sample, l Limits) (*Pair, error) {
	if flood == nil || flood.Len() == 0 {
		return nil, errors.New("the sample of the flood has no packets")
	}
	if good == nil {
		good = NewSample(flood.link, l.Policy, 1)
	}
	l.fill()
	p := &Pair{made: *newWork(flood, good, l)}
	var err error
	p.first, err = p.made.suggested(full(p.made.views[0].len()))
	return p, err
}

// Propose finds rules that drop at most a share of good packets, from 0 to 1.
func (p *Pair) Propose(collateral float64) (*Proposal, error) {
	w := p.made
	w.Collateral = collateral
	if err := w.find(slices.Clone(p.first)); err != nil {
		return nil, err
	}
	return w.proposal(), nil
}

func (l *Limits) fill() {
	if l.Least <= 0 {
		l.Least = fewest
	}
	if l.Searched <= 0 {
		l.Searched = searched
	}
	if l.Enough <= 0 {
		l.Enough = 1
	}
	if l.Rules <= 0 {
		l.Rules = 8
	}
	if l.Terms <= 0 {
		l.Terms = 8
	}
	if l.Label == "" {
		l.Label = "flood"
	}
}

// work is the making of one proposal.
type work struct {
	Limits
	flood, good *Sample
	base        *policy.Policy // without rules that remember packets
	forgot      bool           // it had some
	before      findings       // of base
	targets     []int          // packets of the flood that pass
	slots       []int          // what decides each packet of the flood today
	already     int
	kept        int
	views       [2]*view
	held        map[string][2]set // packets of each view that meet a term, by its text
	chosen      []chosen
	tail        bool
}

// chosen is a rule that is part of the proposal.
type chosen struct {
	*rule
	resolved *policy.Rule
	at       int // in base.Rules: it stands in front of that
	covers   set // of the whole view of the flood
}

func newWork(flood, good *Sample, l Limits) *work {
	w := &work{Limits: l, flood: flood, good: good, base: l.Policy}
	if w.base == nil {
		p, _ := resolve.Parse("none", []byte("default pass\n"), nil)
		w.base = p
	}
	w.base, w.forgot = forget(w.base)
	w.before = findingsOf(w.base, nil)
	slots := w.base.Slots()
	w.judge(w.base, nil, flood, func(n int, slot int, act action.Action) {
		w.slots = append(w.slots, slot)
		switch r := slots[slot].Reason; {
		case act == action.Drop:
			w.already++
		case r == policy.ByProtect || r == policy.ByEssential:
			w.kept++
		default:
			w.targets = append(w.targets, n)
		}
	})
	w.views[0] = newView(flood, evenly(w.targets, w.Searched))
	w.views[1] = newView(good, evenly(good.all(), w.Searched))
	w.held = map[string][2]set{}
	return w
}

// suggested returns the terms that packets of the flood suggest, each with the packets that match
// it.
func (w *work) suggested(left set) ([]*term, error) {
	terms := suggest(groupsOf(w.views[0], w.views[1], left))
	var asked []*term // for the rules before nobody has
	for _, t := range terms {
		if _, known := w.held[t.text]; !known {
			asked = append(asked, t)
		}
	}
	for i, v := range w.views {
		if len(asked) == 0 {
			break
		}
		held, err := v.ask(asked)
		if err != nil {
			return nil, err
		}
		for k, t := range asked {
			sets := w.held[t.text]
			sets[i] = held[k]
			w.held[t.text] = sets
		}
	}
	for _, t := range terms {
		t.holds = w.held[t.text]
	}
	for _, t := range terms {
		t.weigh(w.views[1].len())
	}
	return terms, nil
}

// find looks for one rule after the other, each for what those before leave of the flood. The first
// is made of terms that all of it suggests.
func (w *work) find(terms []*term) error {
	flood, good := w.views[0], w.views[1]
	left, spared := full(flood.len()), full(good.len())
	least := max(int(w.Least*float64(flood.len())), min(few, flood.len()))
	until := int((1 - w.Enough) * float64(flood.len()))
	for len(w.chosen) < w.Rules && left.count() >= max(least, until+1) {
		if len(w.chosen) > 0 {
			var err error
			if terms, err = w.suggested(left); err != nil {
				return err
			}
		}
		s := &search{terms: terms, left: left, spared: spared, n: flood.len(), good: good.len(),
			least: max(least, int(fewest*float64(left.count())))}
		s.allowance = w.allowed(good.len()) - (good.len() - spared.count())
		r := w.first(s)
		if r == nil {
			break
		}
		left, spared = without(left, r.flood), without(spared, r.good)
	}
	w.prune()
	return nil
}

// allowed returns how many of n good packets that are searched rules may drop: by two standard
// deviations more where these are a part of the sample, as all of it is measured before a rule is
// taken.
func (w *work) allowed(n int) int {
	mean := w.Collateral * float64(n)
	if n < w.good.Len() && mean > 0 {
		mean += 2 * math.Sqrt(mean)
	}
	return int(mean)
}

// first returns the best rule that the samples as a whole allow, as narrow as it can be. Sources
// that turn out to look forged are not asked for.
func (w *work) first(s *search) *rule {
	blind := w.good.Len() < fewGood
	for _, r := range s.rules() {
		narrow := s.narrow(r, w.Terms, blind)
		if narrow.asks(field.SrcAddr) {
			if _, forged := w.describe(narrow); forged {
				s.terms = slices.DeleteFunc(s.terms, func(t *term) bool {
					return t.field == field.SrcAddr
				})
				return w.first(s)
			}
		}
		for _, r := range []*rule{narrow, s.sparing(narrow), r, s.sparing(r)} {
			if r != nil && (!blind || r.specific()) && w.accept(r, s) {
				return r
			}
		}
	}
	return nil
}

// longest is the length of the longest packets on the Internet: a range of lengths is a part of
// that.
const longest = 1500

// specific says whether two terms at least name a very small part of what their fields can hold,
// besides those about where the flood goes.
func (r *rule) specific() bool {
	n := 0
	for _, t := range r.terms {
		width := t.width
		switch t.field {
		case field.DstAddr, field.DstPort:
			continue
		case field.Len:
			width *= float64(t.field.Info().Max+1) / longest
		}
		if !t.not && width <= 1.0/100 {
			n++
		}
	}
	return n >= 2
}

// prune takes out rules that later, wider ones have made superfluous.
func (w *work) prune() {
	for i := len(w.chosen) - 1; i >= 0; i-- {
		others, all := newSet(w.views[0].len()), newSet(w.views[0].len())
		for k, c := range w.chosen {
			all = or(all, c.covers)
			if k != i {
				others = or(others, c.covers)
			}
		}
		if float64(others.count()) >= kept*float64(all.count()) && len(w.chosen) > 1 {
			w.chosen = append(w.chosen[:i], w.chosen[i+1:]...)
		}
	}
}
