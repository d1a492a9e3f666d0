package dashboard

import (
	"testing"

	"levee/internal/lang/action"
)

// Every action that may decide has a verdict to show, and no other has one.
func TestEveryActionThatDecidesHasAVerdict(t *testing.T) {
	special := map[action.Action]string{action.Cookie: "answer"}
	for _, a := range action.Table() {
		want := special[a.Action]
		if want == "" && a.Action.MayDecide() {
			want = a.Verdict.String()
		}
		if got := verdictOf(a.Word); got != want {
			t.Errorf("%s: verdict %q, want %q", a.Word, got, want)
		}
	}
	if got := verdictOf("nothing"); got != "" {
		t.Errorf("a word that is no action has the verdict %q", got)
	}
}
