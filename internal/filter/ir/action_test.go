package ir

import (
	"slices"
	"testing"

	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// What is not listed of an effect is not done with its rules.
func TestEffectThatNothingIsListedOfMayNothing(t *testing.T) {
	for _, v := range []Verdict{Drop, Pass, NoVerdict} {
		a := &Action{v, []Effect{{Action: action.Foreign}, {Action: action.Count}}}
		for _, trait := range []action.Traits{action.GoesOn, action.MayGo, action.MayShare,
			action.MayBeTree, action.MayBeBytecode} {
			if a.May(trait) {
				t.Errorf("%s may %b", a, trait)
			}
		}
		if a.Decides() != (v != NoVerdict) {
			t.Errorf("%s: decides %v", a, a.Decides())
		}
	}
}

func TestTraitsOfActionsOfTheLanguage(t *testing.T) {
	type answers struct{ decides, goes, share, tree, bytecode bool }
	for does, want := range map[*Action]answers{
		actions[action.Drop]:    {true, true, true, true, true},
		actions[action.Pass]:    {true, true, true, true, true},
		actions[action.Protect]: {true, true, true, true, true},
		actions[action.Count]:   {false, true, true, false, true},
		// Only the rule that decides has the effect, and bytecode finds that in no order.
		{Verdict: Drop, Effects: []Effect{{Action: action.Count}}}: {true, true, true, false,
			false},
	} {
		got := answers{does.Decides(), does.May(action.MayGo),
			does.May(action.MayShare), does.May(action.MayBeTree), does.May(action.MayBeBytecode)}
		if got != want {
			t.Errorf("%s: %+v, want %+v", does, got, want)
		}
	}
	if (&Action{}).String() != "drop" {
		t.Errorf("the zero value is %s", &Action{})
	}
}

// A rule that an earlier one covers goes, unless it has an effect that says nothing of that; a rule
// with an effect covers others if it decides.
func TestShadowingAsksTheTableOfEffects(t *testing.T) {
	text := "drop udp from 10.0.0.0/8\ncount udp from 10.0.0.0/9\ndrop udp from 10.0.0.0/9 port " +
		"7\ndefault pass\n"
	p, ds := resolve.Parse("test.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	class := Class{Family: IPv4, Transport: UDP}.Index()
	slots := func(x Extension) (out []int) {
		for _, r := range BuildWith(p, x).Lists[class] {
			if i := r.Slot - p.RuleSlot(0); i < len(p.Rules) {
				out = append(out, i)
			}
		}
		return out
	}
	on := func(rules ...int) Extension {
		return func(r *policy.Rule) []Effect {
			if slices.ContainsFunc(rules, func(i int) bool { return p.Rules[i] == r }) {
				return []Effect{{Action: action.Foreign}}
			}
			return nil
		}
	}
	for _, c := range []struct {
		x    Extension
		want []int
	}{
		{nil, []int{0}},
		{on(0), []int{0}},
		{on(1), []int{0, 1}},
		{on(1, 2), []int{0, 1, 2}},
	} {
		if got := slots(c.x); !slices.Equal(got, c.want) {
			t.Errorf("rules %v are left, want %v", got, c.want)
		}
	}
}
