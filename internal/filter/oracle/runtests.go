package oracle

import (
	"fmt"
	"time"

	"levee/internal/lang/policy"
)

// TestResult is one `test` statement after it was run.
type TestResult struct {
	Test  *policy.Test
	Steps []StepResult // one for each packet, in order; steps that fill a set have none
}

// StepResult is one packet of a test.
type StepResult struct {
	Step   *policy.Step
	Result Result
	Fault  string // what differs from the expectation; "" if nothing does
}

// Passed says whether every packet met its expectation.
func (t TestResult) Passed() bool {
	for _, s := range t.Steps {
		if s.Fault != "" {
			return false
		}
	}
	return true
}

// RunTests runs the tests of p, each with dynamic sets that hold nothing but what the test itself
// puts there.
func RunTests(p *policy.Policy) []TestResult {
	var results []TestResult
	for _, t := range p.Tests {
		e := New(p)
		res := TestResult{Test: t}
		for i := range t.Steps {
			step := &t.Steps[i]
			if step.Set != nil {
				if err := e.AddEntry(step.Set.Name, step.Entry, time.Time{}); err != nil {
					res.Steps = append(res.Steps, StepResult{Step: step, Fault: err.Error()})
				}
				continue
			}
			r := e.Eval(step.Frame)
			res.Steps = append(res.Steps, StepResult{Step: step, Result: r, Fault: fault(p, step, r)})
		}
		results = append(results, res)
	}
	return results
}

// fault compares a verdict with what the step expects, and says how they differ.
func fault(p *policy.Policy, step *policy.Step, r Result) string {
	slot := p.Slots()[r.Slot]
	got := fmt.Sprintf("%s by %s", r.Action, Decider(p, slot))
	switch {
	case r.Action != step.Expect:
		return fmt.Sprintf("expected %s, got %s", step.Expect, got)
	case step.By != "" && slot.Reason.String() != step.By:
		return fmt.Sprintf("expected %s by %s, got %s", step.Expect, step.By, got)
	case step.Label != "" && (slot.Rule == nil || slot.Rule.Label != step.Label):
		return fmt.Sprintf("expected %s by %q, got %s", step.Expect, step.Label, got)
	}
	return ""
}

// Decider names what decided in a few words: `"bogon" (edge.levee:14)`, `malformed:ip-length`,
// `the default (edge.levee:20)`.
func Decider(p *policy.Policy, s policy.Slot) string {
	where := p.Where(s)
	switch {
	case s.Reason == policy.ByDefault:
		return fmt.Sprintf("the default (%s)", where)
	case s.Rule == nil:
		return where
	case s.Rule.Label != "":
		return fmt.Sprintf("%q (%s)", s.Rule.Label, where)
	}
	return fmt.Sprintf("`%s` (%s)", s.Rule.Text, where)
}
