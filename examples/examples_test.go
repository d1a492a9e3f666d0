package examples

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"levee/internal/dataplane/judge/judgetest"
	"levee/internal/filter/ir"
	"levee/internal/lang/ast"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
)

// TestExamples keeps the policies true: each one is laid out as `levee fmt` does, has no rule that
// can never match, and passes its own tests, which show every rule at work.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("*.levee")
	if err != nil || len(files) < 6 {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			checkLayout(t, file)
			p, diags, err := resolve.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range diags {
				t.Errorf("%d:%d: %s: %s %s", d.Line, d.Col, d.Severity, d.Message, d.Hint)
			}
			if p == nil {
				t.FailNow()
			}
			for _, f := range ir.Build(p).Findings {
				t.Errorf("line %d: %s %s", f.Pos.Line, f.Message, f.Hint)
			}
			checkTests(t, p)
		})
	}
}

func checkLayout(t *testing.T, file string) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tree, _ := syntax.Parse(file, src)
	if !tree.Failed && !bytes.Equal(ast.Format(tree), src) {
		t.Error("levee fmt would change it")
	}
}

// checkTests runs the policy's own tests, and looks for rules that none of them shows.
func checkTests(t *testing.T, p *policy.Policy) {
	t.Helper()
	shown := map[int]bool{}
	results, err := judgetest.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range results {
		for _, r := range res.Packets {
			if r.Fault != "" {
				t.Errorf("line %d: test %q: %s", r.Step.Pos.Line, res.Test.Name, r.Fault)
			}
			shown[r.Verdict.Slot] = true
		}
	}
	for i, slot := range p.Slots() {
		if slot.Rule != nil && slot.Action.Decides() && !shown[i] {
			t.Errorf("line %d: no test shows the rule %s", slot.Rule.Pos.Line, slot.Rule.Text)
		}
	}
}
