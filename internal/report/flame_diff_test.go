package report

import (
	"slices"
	"strings"
	"testing"
)

// TestTwoFlameGraphsAreCompared: from what was written before, with names that markup has a meaning
// for.
func TestTwoFlameGraphsAreCompared(t *testing.T) {
	before, after := NewFlame(classes...), NewFlame(classes...)
	before.Add([]string{"thread", "a<b>: c"}, "driver", "kernel", 60)
	before.Add([]string{"thread", "gone"}, "kernel", "kernel", 20)
	before.Add([]string{"[idle]"}, "idle", "kernel", 20)
	after.Add([]string{"thread", "a<b>: c"}, "driver", "kernel", 50)
	after.Add([]string{"thread", "new", "in new"}, "kernel", "kernel", 120)
	after.Add([]string{"[idle]"}, "idle", "kernel", 30)
	read, err := ReadFlame(before.SVG("before", ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Since(read); !slices.Equal(got, []string{"gone 20.00 %"}) {
		t.Errorf("gone: %q", got)
	}
	_, titles := drawn(t, after)
	for _, want := range []string{"all: 100.00 %, 200 samples, 100.00 % before",
		"a<b>: c: 25.00 %, 50 samples, 60.00 % before",
		"in new: 60.00 %, 120 samples, 0.00 % before",
		"[idle]: 15.00 %, 30 samples, 20.00 % before"} {
		if !slices.Contains(titles, want) {
			t.Errorf("no %q in %q", want, titles)
		}
	}
	for by, want := range map[float64]string{0: sameColour, 35: moreColour, -35: lessColour} {
		if got := changed(by); got != want {
			t.Errorf("changed by %v: %s", by, got)
		}
	}
	again, err := ReadFlame(after.SVG("a comparison", ""))
	if err != nil || again.root.children["thread"].children["new"].count != 120 {
		t.Errorf("what was compared is read again: %v", err)
	}
	const row = `<g class="f"><title>all: 1.00 %, 1 samples</title><rect y="100"/></g>`
	for _, bad := range []string{"", "<svg", "<svg></svg>",
		`<svg><g class="f"><title>x</title></g></svg>`,
		"<svg>" + row + strings.Replace(row, "100\"", "10\"", 1) + "</svg>",
		"<svg>" + row + row + "</svg>"} {
		if f, err := ReadFlame([]byte(bad)); err == nil {
			t.Errorf("%.60q is a graph of %d", bad, f.root.count)
		}
	}
}
