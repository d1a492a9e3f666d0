package ir

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// Action lists the effects, in their order, on a packet that meets all conditions of a rule, and
// perhaps a verdict behind them. The zero value drops.
type Action struct {
	Verdict Verdict
	Effects []Effect
}

// Verdict is the fate of a packet. The zero value drops.
type Verdict uint8

const (
	Drop Verdict = iota
	Pass
	Answer    // the packet is an answer now, and goes back
	Redirect  // the packet goes to who reads a ring
	NoVerdict // the packet goes on to the next rule
)

// String returns the word of the language, "" for NoVerdict.
func (v Verdict) String() string { return [...]string{"drop", "pass", "answer", "redirect", ""}[v] }

// Effect is something that a rule does to a packet besides deciding it. Effects happen in the order
// of the rules, once, and only for packets that come to the rule.
type Effect struct {
	Action action.Action // whose effect it is
	Value  uint32        // what it means depends on the action
	Limit  *policy.Limit // of a limit
	Ring   string        // of a redirect: its name
	// Answers is the protocol whose first packets a cookie answers.
	Answers action.Answered
}

// in returns what the rule does in a class and those that ask the same.
func (a *Action) in(c Class) *Action {
	begins := func(e Effect) bool { return e.Action.Info().Begins }
	if c.Transport == TCP || !slices.ContainsFunc(a.Effects, begins) {
		return a
	}
	rest := slices.DeleteFunc(slices.Clone(a.Effects), begins)
	if len(rest) == 0 && a.Verdict == Pass {
		return actions[action.Pass]
	}
	return &Action{a.Verdict, rest}
}

// Decides reports whether every packet that meets the rule is decided by it.
func (a *Action) Decides() bool { return a.Verdict != NoVerdict }

// Takes reports whether packets that meet the rule do not go on to the machine, or may not.
func (a *Action) Takes() bool { return a.Verdict == Drop || a.Has(action.Redirect) }

// May reports whether all effects have traits.
func (a *Action) May(t action.Traits) bool {
	may := action.All
	for _, e := range a.Effects {
		may &= e.Action.Info().May
	}
	if a.Decides() && len(a.Effects) > 0 {
		may &^= action.MayBeBytecode // only the rule that decides has its effects
	}
	return may&t == t
}

// Stretch returns how many rules from the start of a list on are alike in whether they may do
// something, and whether they may.
func Stretch(rules []Rule, t action.Traits) (n int, may bool) {
	may = rules[0].Action.May(t)
	for n < len(rules) && rules[n].Action.May(t) == may {
		n++
	}
	return n, may
}

// Has reports whether the rule has the effect of an action.
func (a *Action) Has(of action.Action) bool {
	return slices.ContainsFunc(a.Effects, func(e Effect) bool { return e.Action == of })
}

// String returns the action in words.
func (a *Action) String() string {
	var words []string
	for _, e := range a.Effects {
		name := e.Action.String()
		if name == "" {
			name = fmt.Sprintf("effect %d", e.Action)
		}
		if e.Ring != "" {
			name += fmt.Sprintf(" to %q", e.Ring)
		} else if e.Value != 0 {
			name += fmt.Sprintf(" %d", e.Value)
		}
		words = append(words, name)
	}
	if a.Decides() {
		words = append(words, a.Verdict.String())
	}
	return strings.Join(words, ", ")
}

// actions are those of the language, which all rules share that have them.
var actions = func() map[action.Action]*Action {
	out := map[action.Action]*Action{}
	for _, info := range action.Table() {
		a := &Action{Verdict: NoVerdict}
		if info.Effect {
			a.Effects = append(a.Effects, Effect{Action: info.Action})
		}
		switch {
		case !info.Action.MayDecide() && !a.Has(action.Count):
			a.Effects = append(a.Effects, Effect{Action: action.Count})
		case info.Decides && info.Verdict == action.Pass:
			a.Verdict = Pass
		case info.Decides:
			a.Verdict = Drop
		}
		out[info.Action] = a
	}
	return out
}()

// Extension gives rules effects that the language does not have.
type Extension func(r *policy.Rule) []Effect

// of returns what a rule of the policy does: the effects of the extension come first.
func (x Extension) of(r *policy.Rule) *Action {
	a := actions[r.Action]
	if r.Limit != nil {
		a = &Action{NoVerdict, []Effect{{Action: action.Limit, Limit: r.Limit}}}
	}
	if r.Action == action.Log {
		a = &Action{NoVerdict, []Effect{{Action: action.Log, Value: r.Sample},
			{Action: action.Count}}}
	}
	if r.Cookie != nil {
		a = &Action{NoVerdict, []Effect{{Action: action.Cookie, Value: uint32(r.Cookie.Above),
			Answers: r.Cookie.Answers}}}
	}
	if r.Greylist != nil {
		a = &Action{NoVerdict, []Effect{{Action: action.Greylist,
			Value: uint32(r.Greylist.Above)}}}
	}
	if r.Ring != nil {
		a = &Action{Drop, []Effect{{Action: action.Redirect, Ring: r.Ring.Name}}}
		if r.Ring.Else == action.Pass {
			a.Verdict = Pass
		}
	}
	if x == nil {
		return a
	}
	more := x(r)
	if len(more) == 0 {
		return a
	}
	return &Action{a.Verdict, slices.Concat(more, a.Effects)}
}
