package plan_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/goldentest"
	"levee/internal/lang/resolve"
)

// planOf plans the program of a policy file.
func planOf(t *testing.T, file string, target plan.Target) *plan.Plan {
	t.Helper()
	p, diags, err := resolve.Load(file)
	if p == nil {
		t.Fatal(errors.Join(err, diags.Err()))
	}
	made, err := plan.New(ir.Build(p), target)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// NAME.plan is what becomes of the policy NAME.levee, for XDP and one CPU.
func TestPlans(t *testing.T) {
	files, err := filepath.Glob("../../../test/policy/valid/*.levee")
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var got bytes.Buffer
			if err := planOf(t, file, plan.Target{}).Print(&got); err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".levee") + ".plan"
			goldentest.Compare(t, golden, got.Bytes())
		})
	}
}
