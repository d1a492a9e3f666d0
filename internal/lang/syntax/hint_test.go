package syntax

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/diag"
	"levee/internal/lang/foreign"
)

// TestAWordThatIsOutOfPlaceIsReportedOnce: `drop opcode 3` was reported a hundred times, each time
// with the hint that `opcode` was meant, and what was wrong behind it was not. Of a packet with
// `name` it was said that `as` was meant, which no packet has.
func TestAWordThatIsOutOfPlaceIsReportedOnce(t *testing.T) {
	words := append(Words(), slices.Sorted(maps.Keys(foreign.Words))...)
	meant := regexp.MustCompile(`^did you mean "(\S+)"\?$`)
	for _, form := range []string{"drop %s\ndefault pass\n", "drop udp port 53 %s\ndefault pass\n",
		"default pass\ntest \"t\" { packet udp %s expect pass }\n"} {
		for _, w := range words {
			at := map[diag.Pos]bool{}
			_, ds := Parse("f", []byte(fmt.Sprintf(form, w)))
			for _, d := range ds {
				if at[d.Pos] {
					t.Errorf(form+": %s is said of one place again: %s", w, d.Message, d.Hint)
					break
				}
				at[d.Pos] = true
				m := meant.FindStringSubmatch(d.Hint)
				if m == nil {
					continue
				}
				_, again := Parse("f", []byte(fmt.Sprintf(form, m[1])))
				for _, a := range again {
					if a.Pos.Line == d.Pos.Line && a.Pos.Col == d.Pos.Col {
						t.Errorf(form+": the hint is %q, and of that %s", w, m[1], a.Message)
					}
				}
			}
			if len(ds) > 8 {
				t.Errorf(form+": %d errors", w, len(ds))
			}
		}
	}
}

// TestAWordWithoutItsFirstIsNamedWhole, as of DNS messages.
func TestAWordWithoutItsFirstIsNamedWhole(t *testing.T) {
	for text, want := range map[string]string{
		"drop udp port 53 dns type A opcode 3": "did you mean \"dns opcode\"?",
		"drop query":                           "did you mean \"dns query\"?",
		"drop udp strict":                      "did you mean \"reverse-path strict\"?",
	} {
		if got := renderOne(t, text+"\n", false); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
