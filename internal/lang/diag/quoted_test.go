package diag

import (
	"strings"
	"testing"
)

// A name that is shown in a line of text can be had back, whatever it holds, and nothing of it acts
// on a terminal.
func TestShownNamesCanBeHadBack(t *testing.T) {
	for _, name := range []string{
		"", "edge.levee", "x\x01y", `"`, `"x"`, `"x\x01"`, `x\x01`, "\"\x01\":7", "a\xffb", "`", "'x'",
	} {
		shown := Quoted(name)
		if strings.Contains(shown, "\x01") || strings.Contains(shown, "\xff") {
			t.Errorf("%q is shown as %s", name, shown)
		}
		for _, behind := range []string{"", ":14"} {
			if got := Unquoted(shown + behind); got != name+behind {
				t.Errorf("%q, shown as %s%s, comes back as %q", name, shown, behind, got)
			}
		}
	}
	if got, want := Base(Quoted("/d\x02/p.levee")), "p.levee"; got != want {
		t.Errorf("the base is %s, want %s", got, want)
	}
}
