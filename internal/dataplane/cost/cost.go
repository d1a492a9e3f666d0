// Package cost measures what a packet costs in the compiled program of a policy, by the rule that
// it reaches.
//
// In goes a policy. Packets are made from its rules (package craft), the oracle says which rule
// each one reaches, and the kernel runs the compiled program and an empty one on them by turns. Out
// come nanoseconds above the empty program. Nothing is attached to an interface.
package cost

import (
	"context"
	"fmt"
	"slices"
	"time"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/lang/policy"
	"levee/internal/packet/craft"
)

// Options say how much is measured.
type Options struct {
	Repeat int // packets in one run of the kernel
	Rules  int // at most so many rules
	// Progress is called as the work goes on.
	Progress func(Progress)
}

// Progress tells how far a measurement is.
type Progress struct {
	Measuring string // the place of the rule that is measured; "" while packets are sought
	Done, All int    // rules
}

// Report holds the costs of packets; times are nanoseconds a packet.
type Report struct {
	Ns          float64 // above the empty program, over all packets of Rules alike
	NsEmpty     float64 // the empty program with the kernel's test loop
	Spread      float64 // half the distance between the quartiles of Ns over the rounds
	Rules       []Rule  // what was measured, in the order of the policy's slots
	NotReached  []policy.Slot
	NotMeasured int // rules
	Every       int // one rule in so many was looked at
}

// Rule is the cost of a packet that reaches one slot.
type Rule struct {
	Slot   policy.Slot
	Frame  []byte
	By     int // index of the slot that decides the frame: another where the rule only counts
	Ns     float64
	Spread float64
}

// Measure measures a policy: its rules, built-in ones and the default: those for which a packet was
// found that reaches them. It needs the privileges of dataplane.NewRunner.
func Measure(ctx context.Context, p *policy.Policy, o Options) (*Report, error) {
	prog, err := codegen.Compile(p, codegen.Target{})
	if err != nil {
		return nil, err
	}
	runner, err := loader.NewRunner(prog)
	if err != nil {
		return nil, err
	}
	defer runner.Close()
	ref := oracle.New(p)
	for _, s := range p.Sets {
		if s.Kind != policy.Dynamic {
			continue
		}
		for _, e := range craft.Entries(s) {
			entry := sets.EntryOf(e, sets.Forever)
			if err := ref.AddEntry(s.Name, e, time.Time{}); err != nil {
				return nil, err
			}
			if err := runner.SetAdd(s.Name, entry); err != nil {
				return nil, err
			}
		}
	}
	every := sampleEvery(len(p.Protect)+len(p.Rules), o.Rules)
	frames, err := findFrames(ctx, p, ref, every, o.Progress)
	if err != nil {
		return nil, err
	}
	m := &measurement{Options: o, policy: p, judge: ref, frames: frames, rep: Report{Every: every}}
	return m.run(ctx, func(frame []byte) (loader.Cost, error) {
		return runner.Bench([][]byte{frame}, o.Repeat)
	})
}

// manyRules is the number of rules from which only a sample of them is measured: for each packet
// that is tried the oracle walks all rules.
const manyRules = 1000

// sampleEvery returns 1 to look at all rules, or n to look at each n-th of them.
func sampleEvery(rules, most int) int {
	if rules <= max(manyRules, most) {
		return 1
	}
	return (rules + most - 1) / most
}

// findFrames finds a frame for each slot of interest.
func findFrames(ctx context.Context, p *policy.Policy, ref *oracle.Evaluator, every int,
	progress func(Progress)) ([][]byte, error) {
	s := craft.Search{
		Policy: p, Every: every,
		Judge: func(frame []byte) []int {
			r := ref.Eval(frame)
			return append(r.Counted, r.Slot)
		},
		Next: func(rule, of int) error {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted while packets were sought, at rule %d of %d", rule,
					of)
			}
			progress(Progress{Done: rule, All: of})
			return nil
		},
	}
	return s.ForSlots()
}

// measurement is one under way.
type measurement struct {
	Options
	policy *policy.Policy
	judge  *oracle.Evaluator
	frames [][]byte // by slot; nil: none was found
	rep    Report
	rounds [][]float64
}

// run measures the frames.
func (m *measurement) run(ctx context.Context,
	bench func(frame []byte) (loader.Cost, error)) (*Report, error) {
	rep, all, rule := &m.rep, m.most(), -1
	for i, s := range m.policy.Slots()[:len(m.frames)] { // what leaves is not measured
		if s.Rule != nil {
			rule++
		}
		switch {
		case m.frames[i] == nil && s.Rule == nil:
			continue
		case m.frames[i] == nil && rule%rep.Every == 0:
			rep.NotReached = append(rep.NotReached, s)
			continue
		case m.frames[i] == nil, rep.Every == 1 && len(rep.Rules) >= m.Rules &&
			s.Reason != policy.ByDefault:
			rep.NotMeasured++
			continue
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted after %s", rules(len(rep.Rules)))
		}
		m.Progress(Progress{Measuring: m.policy.Where(s), Done: len(rep.Rules), All: all})
		c, err := bench(m.frames[i])
		if err != nil {
			return nil, err
		}
		m.rounds = append(m.rounds, c.Rounds)
		rep.NsEmpty += c.NsEmpty
		rep.Rules = append(rep.Rules, Rule{
			Slot: s, Frame: m.frames[i], By: m.judge.Eval(m.frames[i]).Slot,
			Ns: c.NsPerPacket, Spread: c.Spread,
		})
	}
	rep.NsEmpty /= float64(max(1, len(m.rounds)))
	rep.Ns, rep.Spread = overall(m.rounds)
	return rep, nil
}

// most returns how many slots are measured, if there is nothing in the way.
func (m *measurement) most() int {
	n := 0
	for _, frame := range m.frames {
		if frame != nil {
			n++
		}
	}
	if m.rep.Every == 1 {
		n = min(n, m.Rules+1) // and the default
	}
	return n
}

func rules(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}

// overall returns the median, over the rounds, of the mean over the packets, and half the distance
// of its quartiles.
func overall(rounds [][]float64) (median, spread float64) {
	if len(rounds) == 0 {
		return 0, 0
	}
	means := make([]float64, len(rounds[0]))
	for _, packet := range rounds {
		for i := range means {
			means[i] += packet[i] / float64(len(rounds))
		}
	}
	slices.Sort(means)
	n := len(means)
	return means[n/2], (means[n*3/4] - means[n/4]) / 2
}
