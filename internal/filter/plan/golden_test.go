package plan_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/policy"
)

var update = flag.Bool("update", false, "write the goldens of plans anew")

// planOf plans the program of a policy file.
func planOf(t *testing.T, file string, target plan.Target) *plan.Plan {
	t.Helper()
	p, diags, err := policy.Load(file)
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
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v (go test ./internal/filter/plan -update writes it)", err)
			}
			if d := cmp.Diff(string(want), got.String()); d != "" {
				t.Errorf("%s (-golden +got):\n%s", golden, d)
			}
		})
	}
}
