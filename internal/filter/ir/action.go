package ir

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/lang/policy"
)

// Action is what a rule does to a packet that meets all its conditions: effects, in their order, and
// then perhaps a verdict. The zero value drops.
type Action struct {
	Verdict Verdict
	Effects []Effect
}

// Verdict is what becomes of a packet. The zero value drops.
type Verdict uint8

const (
	Drop Verdict = iota
	Pass
	NoVerdict // the packet goes on to the next rule
)

// String is the word of the language; NoVerdict has none.
func (v Verdict) String() string { return [...]string{"drop", "pass", ""}[v] }

// Effect is something that a rule does to a packet besides deciding it. Effects happen in the order of
// the rules, once, and only for packets that come to the rule.
type Effect struct {
	Kind  EffectKind
	Value uint32 // what it means depends on the kind
}

// EffectKind is a kind of effect.
type EffectKind uint8

const (
	Count EffectKind = iota + 1 // adds the packet to the rule's counter

	// Kinds from Foreign on are not of the language: who adds such effects to rules emits them too.
	Foreign EffectKind = 128
)

// Traits are what may be done with a rule that has an effect, besides doing it where the rule stands.
type Traits uint8

const (
	// GoesOn: the effect never decides. The packet meets what follows.
	GoesOn Traits = 1 << iota
	// MayGo: the rule may be left out where an earlier rule decides all that it matches.
	MayGo
	// MayShare: classes of packets whose rules are the same may share the code of the rule.
	MayShare
	// MayBeTree: the rule may stand in a rule tree, which only finds the first rule that matches.
	MayBeTree
	// MayBeBytecode: the rule may be bytecode. That finds the rule that decides first, and the other
	// rules before it then, in any order. So the effect must give the same before, between and behind
	// all others.
	MayBeBytecode

	all = GoesOn | MayGo | MayShare | MayBeTree | MayBeBytecode
)

// effects says of each kind of effect what it is called, and what may be done with rules that have
// it. A kind that is not listed may nothing.
var effects = map[EffectKind]struct {
	name string
	may  Traits
}{
	Count: {"count", GoesOn | MayGo | MayShare | MayBeBytecode},
}

// EffectKinds lists the kinds of the language.
func EffectKinds() (kinds []EffectKind) {
	for k := range effects {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds
}

// Decides reports whether every packet that meets the rule is decided by it.
func (a *Action) Decides() bool { return a.Verdict != NoVerdict }

// MayDecide reports whether a packet that meets the rule may be decided by it.
func (a *Action) MayDecide() bool { return a.Decides() || !a.May(GoesOn) }

// May reports whether all effects have traits.
func (a *Action) May(t Traits) bool {
	may := all
	for _, e := range a.Effects {
		may &= effects[e.Kind].may
	}
	if a.Decides() && len(a.Effects) > 0 {
		may &^= MayBeBytecode // only the rule that decides has its effects
	}
	return may&t == t
}

// Stretch returns how many rules from the start of a list on are alike in whether they may do
// something, and whether they may.
func Stretch(rules []Rule, t Traits) (n int, may bool) {
	may = rules[0].Action.May(t)
	for n < len(rules) && rules[n].Action.May(t) == may {
		n++
	}
	return n, may
}

// Has reports whether the rule has an effect of a kind.
func (a *Action) Has(k EffectKind) bool {
	return slices.ContainsFunc(a.Effects, func(e Effect) bool { return e.Kind == k })
}

// String is the action in words.
func (a *Action) String() string {
	var words []string
	for _, e := range a.Effects {
		name := effects[e.Kind].name
		if name == "" {
			name = fmt.Sprintf("effect %d", e.Kind)
		}
		if e.Value != 0 {
			name += fmt.Sprintf(" %d", e.Value)
		}
		words = append(words, name)
	}
	if a.Decides() {
		words = append(words, a.Verdict.String())
	}
	return strings.Join(words, ", ")
}

// Actions of the language, which all rules share that have them.
var (
	drop  = &Action{Verdict: Drop}
	pass  = &Action{Verdict: Pass}
	count = &Action{Verdict: NoVerdict, Effects: []Effect{{Kind: Count}}}
)

// actionOf is what a word of the language does.
func actionOf(a policy.Action) *Action {
	switch a {
	case policy.Pass, policy.Protect:
		return pass
	case policy.Count:
		return count
	}
	return drop
}

// Extension gives rules effects that the language does not have.
type Extension func(r *policy.Rule) []Effect

// of is what a rule of the policy does: the effects of the extension come first.
func (x Extension) of(r *policy.Rule) *Action {
	a := actionOf(r.Action)
	if x == nil {
		return a
	}
	more := x(r)
	if len(more) == 0 {
		return a
	}
	return &Action{a.Verdict, slices.Concat(more, a.Effects)}
}
