package region

import (
	"strings"
	"testing"

	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

func leavingPolicy(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, ds := resolve.Parse("rules.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	return p
}

// TestADifferenceOfWhatLeavesWasNone: `levee diff`, and `levee up` that replaces a policy, looked
// at what arrives only, and said that no packet is decided otherwise.
func TestADifferenceOfWhatLeavesWasNone(t *testing.T) {
	const said = "default drop\nout drop tcp port 25 as \"smtp\"\n"
	for _, c := range []struct{ a, b, before, after, test string }{
		{"default drop\n", said, "out:default", "out drop tcp port 25 as \"smtp\"",
			"port 25 leaves expect drop"},
		{said, "default drop\n", "out drop tcp port 25 as \"smtp\"", "out:default",
			"port 25 leaves expect pass"},
		{said, said + "out default drop\n", "out:default", "default", "leaves expect drop"},
	} {
		a, b := leavingPolicy(t, c.a), leavingPolicy(t, c.b)
		told := Compare(t.Context(), a, b).Tell(a, b)
		found := false
		for _, d := range told.Differences {
			if !strings.HasPrefix(d.Parts[0].Kind, "what leaves") {
				t.Errorf("%q to %q: %+v", c.a, c.b, d)
			}
			found = found || strings.Contains(d.Before.line(), c.before) &&
				len(d.Test) > 0 && strings.HasSuffix(d.Test[len(d.Test)-1], c.test)
		}
		if !found {
			t.Errorf("%q to %q: %+v", c.a, c.b, told.Differences)
		}
	}
	a, b := leavingPolicy(t, said), leavingPolicy(t, said)
	if told := Compare(t.Context(), a, b).Tell(a, b); len(told.Differences) > 0 {
		t.Errorf("the same twice: %+v", told.Differences)
	}
}
