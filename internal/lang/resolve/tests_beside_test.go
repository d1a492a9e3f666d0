package resolve

import (
	"strings"
	"testing"

	"levee/internal/lang/diag"
	"levee/internal/lang/syntax"
)

// TestTestsOfAnotherFileAreAboutThePolicy: they know its rules and sets, and its own tests are left
// out.
func TestTestsOfAnotherFileAreAboutThePolicy(t *testing.T) {
	const rules = "set bad = dynamic(max 10)\ndrop from bad as \"bad\"\ndefault pass\ntest " +
		"\"own\" { packet arp expect pass }\n"
	for _, c := range []struct{ tests, wrong string }{
		{"test \"other\" {\n  set bad has 192.0.2.1\n  packet tcp from 192.0.2.1 expect drop by " +
			"\"bad\"\n}\n", ""},
		{"default drop\n", "1:1: error: a file of tests has test statements and nothing else"},
		{"test \"other\" { packet tcp expect drop by \"gone\" }\n", "no rule has the label"},
		{"drop tcp\ntest {\n", "a file of tests has test statements"},
	} {
		f, _ := syntax.Parse("dir/edge.levee", []byte(rules))
		tests, ds := syntax.Parse("beside.levee", []byte(c.tests))
		p, more := ConsumeTests(f, tests, nil)
		var text strings.Builder
		if err := diag.Merge(ds, more).Render(&text, false); err != nil {
			t.Fatal(err)
		}
		switch {
		case c.wrong != "" && (p != nil || !strings.Contains(text.String(), "beside.levee:") ||
			!strings.Contains(text.String(), c.wrong)):
			t.Errorf("%q: %v, %s", c.tests, p, &text)
		case c.wrong == "" && (p == nil || p.File != "edge.levee" || len(p.Tests) != 1 ||
			p.Tests[0].Name != "other"):
			t.Errorf("%q: %+v, %s", c.tests, p, &text)
		}
	}
}
