package judge

import (
	"fmt"
	"time"

	"levee/internal/filter/oracle"
	"levee/internal/lang/policy"
)

// TestResult is one test of a policy after it was run.
type TestResult struct {
	Test    *policy.Test
	Packets []PacketResult // in order; steps that fill a set have none
}

// PacketResult is one packet of a test.
type PacketResult struct {
	Step    *policy.Step
	Verdict Verdict
	Fault   string        // how the verdict differs from what the test expects; "" if it does not
	Trace   *oracle.Trace // of a packet with a fault: its story
}

// Passed reports whether each packet met its expectation.
func (r *TestResult) Passed() bool {
	for i := range r.Packets {
		if r.Packets[i].Fault != "" {
			return false
		}
	}
	return true
}

// forgotten is after how long nothing is known any more of connections, and no budget is in debt.
const forgotten = 31*24*time.Hour + 17*time.Second

// forget clears all memories: earlier packets have no effect any more.
func (j *Judge) forget() error {
	j.pass(forgotten)
	j.oracle.ForgetStreams()
	for _, r := range j.runners() {
		if err := r.ForgetStreams(); err != nil {
			return err
		}
	}
	return nil
}

// Test runs one test of the policy. Dynamic sets hold what the test itself puts there and nothing
// else; no connection is known but those of the test, and no limit is reached. Its packets come at
// one time. An error is that of the first step that could not be taken; it names the line in file.
func (j *Judge) Test(file string, t *policy.Test) (*TestResult, error) {
	res := &TestResult{Test: t}
	if err := j.Empty(); err != nil {
		return nil, err
	}
	if err := j.forget(); err != nil {
		return nil, err
	}
	for i := range t.Steps {
		step := &t.Steps[i]
		one, err := j.step(step)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, step.Pos.Line, err)
		}
		if one != nil {
			res.Packets = append(res.Packets, *one)
		}
	}
	return res, nil
}

// step judges a packet. One that leaves has no result, nor has what fills a set.
func (j *Judge) step(step *policy.Step) (*PacketResult, error) {
	if step.Set != nil {
		return nil, j.Add(Entry{step.Set, step.Entry})
	}
	frame, err := j.link.Carry(step.Frame)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", step.Text, err)
	}
	j.Tell(step.Tells)
	var v Verdict
	if step.Leaves {
		v, err = j.Leave(frame)
	} else {
		v, err = j.Frame(frame)
	}
	if err != nil || !step.Judged && !v.Differs {
		return nil, err
	}
	if j.engine == Compiled && !v.Long && !step.Leaves {
		j.oracle.EvalInto(&j.last, frame) // which has to see what its stories are about
	}
	one := &PacketResult{Step: step, Verdict: v, Fault: j.fault(step, v)}
	if one.Fault != "" {
		one.Trace = new(j.Story())
	}
	return one, nil
}

// fault says how a verdict differs from what a test expects, and the engines from one another.
func (j *Judge) fault(step *policy.Step, v Verdict) string {
	slot := j.slots[v.Slot]
	got := fmt.Sprintf("got %s by %s", v.Action, oracle.Decider(j.policy, slot))
	fault := ""
	switch {
	case step.Judged && v.Action != step.Expect:
		fault = fmt.Sprintf("expected %s, %s", step.Expect, got)
	case step.By != "" && slot.Reason.String() != step.By:
		fault = fmt.Sprintf("expected %s by %s, %s", step.Expect, step.By, got)
	case step.Label != "" && (slot.Rule == nil || slot.Rule.Label != step.Label):
		fault = fmt.Sprintf("expected %s by %q, %s", step.Expect, step.Label, got)
	case v.Differs:
		fault = got
	}
	if v.Differs {
		fault += fmt.Sprintf(" from the oracle, but %s by %s from the compiled program: please "+
			"report it with the policy", v.Compiled.Action,
			oracle.Decider(j.policy, j.slots[v.Compiled.Slot]))
	}
	return fault
}
