package ir

import (
	"cmp"
	"slices"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// aspects are properties of a class, other than its family, that change how a match compiles.
type aspects uint8

const (
	byPorts aspects = 1 << iota // whether the class has ports
	// which transport it is, and if none is known whether it is a fragment
	byTransport
	byFragment // whether it is a fragment
)

// aspectsOf returns the aspects of a match. It has to agree with specialise, which reads them.
func aspectsOf(match []policy.Term) (a aspects) {
	for i := range match {
		a |= aspectOf[match[i].Field]
	}
	return a
}

// stand returns the class that stands for c and all others that do not differ from it in these
// aspects.
func (a aspects) stand(c Class) Class {
	out := Class{Family: c.Family}
	switch {
	case a&byTransport != 0:
		out.Transport, out.Fragment = c.Transport, c.Fragment && c.Transport == Other
	case a&byPorts != 0 && hasPorts(c):
		out.Transport = TCP
	}
	if a&byFragment != 0 {
		out.Fragment = c.Fragment
	}
	return out
}

// across tells what a match asks in each class. It is computed once for all classes with the same
// aspects. Classes of a family that ask the same share the conditions.
type across struct {
	match []policy.Term
	aspects
	work    *work
	ordered bool
	lists   lists
	answers [NumClasses]answer
}

// answer says whether a match can hold in a class, and by which questions.
type answer struct {
	known    bool
	possible bool // for some packet of the class
	id       QuestionsID
	conds    []Cond
}

// newAcross is for questions about a match besides lowering it.
func newAcross(match []policy.Term, w *work) *across {
	return &across{match: match, aspects: aspectsOf(match), work: w,
		lists: lists{given: make([]byFamily, len(match))}}
}

// in gives what the match asks in class c.
func (a *across) in(c Class) *answer {
	stand := a.stand(c)
	at := &a.answers[stand.Index()]
	if at.known {
		return at
	}
	asked, possible := a.specialise(stand)
	if possible && len(asked) > 0 {
		if a.ordered {
			order(asked)
		}
		at.id, at.conds = a.shared(c.Family, asked)
	}
	at.known, at.possible = true, possible
	return at
}

// shared gives conditions that lie in scratch memory a place and a number, or those of the same
// ones of another class of the family.
func (a *across) shared(f Family, asked []Cond) (QuestionsID, []Cond) {
	if f != NonIP {
		first := Class{Family: f}.Index()
		for i := range a.answers[first : first+2*int(NumTransports)] {
			if b := &a.answers[first+i]; b.possible && sameConds(b.conds, asked) {
				return b.id, b.conds
			}
		}
	}
	a.work.questions++
	return a.work.questions, a.work.conds.Keep(asked)
}

// list is the rules of classes of one family that do not differ.
type list struct {
	classes []Class
	rules   []Rule
	ended   bool // by a rule that decides without a question
}

// lower lists the rules that can match in each class, in the order they are tried, up to the first
// that decides without a question. Lists come in the order of their first classes.
func lower(p *policy.Policy, trace *reach, x Extension, ordered bool) []*list {
	l := &lowering{trace: trace, ordered: ordered}
	l.begin()
	for i, r := range p.Protect {
		l.add(p.ProtectSlot(i), actions[r.Action], r.Match)
	}
	for i, r := range p.Rules {
		if !r.Malformed {
			l.add(p.RuleSlot(i), x.of(r), r.Match)
		}
	}
	if p.Essential {
		for i, alternatives := range essentialOf(p) {
			for _, match := range alternatives {
				l.add(p.EssentialSlot(i), actions[action.Pass], match)
			}
		}
	}
	l.add(p.DefaultSlot(), actions[p.Default.Action], nil)
	slices.SortFunc(l.lists, func(a, b *list) int {
		return cmp.Compare(a.classes[0].Index(), b.classes[0].Index())
	})
	return l.lists
}

type lowering struct {
	trace   *reach
	ordered bool
	lists   []*list
	rule    across // of the rule that is being added
}

// begin makes an empty list for each family.
func (l *lowering) begin() {
	for _, c := range Classes() {
		if n := len(l.lists); n == 0 || l.lists[n-1].classes[0].Family != c.Family {
			l.lists = append(l.lists, &list{})
		}
		last := l.lists[len(l.lists)-1]
		last.classes = append(last.classes, c)
	}
}

// add appends a rule to the lists of all classes in which it can match. It splits a list where the
// rule differs between its classes.
func (l *lowering) add(slot int, does *Action, match []policy.Term) {
	all := &l.rule
	*all = across{match: match, aspects: aspectsOf(match), work: l.trace.work, ordered: l.ordered}
	all.lists.given = l.trace.work.givenBy(len(match)) // one match is lowered at a time
	for i := 0; i < len(l.lists); i++ {
		to := l.lists[i]
		if to.ended || all.apart(to.classes[0].Family) {
			continue
		}
		if other := all.part(to); other != nil {
			l.lists = append(l.lists, other)
		}
		asks := all.in(to.classes[0])
		if !asks.possible {
			continue
		}
		to.rules = append(to.rules, Rule{Slot: slot, Action: does.in(to.classes[0]),
			Asks: asks.id, Conds: asks.conds})
		if len(asks.conds) == 0 && does.Decides() {
			to.ended = true
			l.trace.ended(to.classes, slot)
		}
	}
}

// apart reports quickly that a match asks for addresses of other families than f: most rules name
// one family by their addresses, and cannot match in a class of another.
func (a *across) apart(f Family) bool {
	for i := range a.match {
		t := &a.match[i]
		if compares[t.Field] == field.ByPrefix && !t.Not && t.Set == nil &&
			len(ofFamily(t.Prefixes, f)) == 0 {
			return true
		}
	}
	return false
}

// part leaves to a list the classes in which the match asks the same as in the first, and gives a
// copy for the others, or nil.
func (a *across) part(l *list) *list {
	first := a.in(l.classes[0])
	var same, others []Class
	for i, c := range l.classes {
		other := a.in(c)
		switch {
		case first.possible != other.possible || first.id != other.id:
			if others == nil {
				same = slices.Clone(l.classes[:i])
			}
			others = append(others, c)
		case others != nil:
			same = append(same, c)
		}
	}
	if others == nil {
		return nil
	}
	l.classes = same
	return &list{classes: others, rules: slices.Clone(l.rules)}
}
