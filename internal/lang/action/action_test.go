package action

import "testing"

func TestTableIsWhole(t *testing.T) {
	words := map[string]bool{}
	for _, row := range table {
		if row.Action >= Foreign || row.Action.Info().Word != row.Word {
			t.Errorf("action %d is not found, or is one that the language does not have",
				row.Action)
		}
		if words[row.Word] || row.Word == "" {
			t.Errorf("the word %q stands for two actions, or for none", row.Word)
		}
		words[row.Word] = true
		if a, ok := Named(row.Word); !ok || a != row.Action {
			t.Errorf("%q is action %d", row.Word, a)
		}
		if v := row.Verdict.Info(); row.Decides &&
			(!v.Decides || v.Verdict != row.Verdict || v.Effect && row.Action != Redirect) {
			t.Errorf("%s decides by %s, which is no verdict", row.Word, row.Verdict)
		}
		if !row.Decides && !row.Effect {
			t.Errorf("%s does nothing", row.Word)
		}
		if row.May != 0 && !row.Effect {
			t.Errorf("%s has no effect, and yet says what may be done with it", row.Word)
		}
	}
	if Action(0) != Drop || Drop.Verdict() != Drop || !Drop.Decides() {
		t.Error("the zero value does not drop")
	}
}

func TestWhatIsNotListedMayNothing(t *testing.T) {
	for _, a := range []Action{Foreign, 255} {
		if i := a.Info(); *i != (Info{}) {
			t.Errorf("action %d: %+v", a, *i)
		}
	}
	if a, ok := Named("forward"); ok {
		t.Errorf("forward is action %d", a)
	}
}
