package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// figure is one that another machine has otherwise; machine is a machine that it may be of.
var (
	figure = regexp.MustCompile(`million packets|[0-9] (k|M) packets|of an empty XDP program|` +
		`times as fast`)
	machine = regexp.MustCompile(`EPYC|Xeon|\bAMD\b|\bIntel\b`)
)

// TestHeadlinesSayOnWhichMachineTheyHold: 0.94 of an empty XDP program was 0.37 on the next one. In
// the README and at the beginning of the benchmarks, what has such a figure names the machine, or
// stands right behind what does.
func TestHeadlinesSayOnWhichMachineTheyHold(t *testing.T) {
	for _, page := range []string{"../README.md", "explanation/benchmarks.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(text), "\n\n")
		figures := 0
		for i, b := range blocks {
			if strings.HasPrefix(b, "## ") && figures > 0 {
				break // the rest says more of the same
			}
			if !figure.MatchString(b) {
				continue
			}
			figures++
			if !machine.MatchString(b) && (i == 0 || !machine.MatchString(blocks[i-1])) {
				t.Errorf("%s says of no machine:\n%s", page, b)
			}
		}
		if figures == 0 {
			t.Errorf("%s has no headline", page)
		}
	}
}
