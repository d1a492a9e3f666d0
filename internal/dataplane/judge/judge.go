// Package judge judges single frames offline: by the reference, by the compiled program in the
// kernel, or by both, whose verdicts it compares. It also runs the tests of a policy.
//
// In go a policy, entries of its dynamic sets and frames. Out come verdicts as slots of the policy,
// and the results of tests. Nothing is attached to an interface.
package judge

import (
	"errors"
	"slices"
	"time"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Engine judges.
type Engine string

const (
	Oracle   Engine = "oracle" // the reference in Go
	Compiled Engine = "bpf"    // the compiled program, in the kernel
	Both     Engine = "both"   // both, compared
)

// Choice is the engine that was asked for, or that the privileges allow.
type Choice struct {
	Engine Engine
	Link   packet.Link
	Auto   bool   // not asked for: less will do
	Why    string // of an automatic choice: why not Both
}

// New makes a judge for a policy. Where nothing was asked for and the kernel lacks what the
// compiled program needs, the oracle judges alone, and the choice says why. A program that the
// verifier refuses is an error in any case.
func (c *Choice) New(p *policy.Policy) (*Judge, error) {
	j, err := NewOn(p, c.Link, c.Engine)
	var verifier *kernel.Verifier
	if c.Auto && errors.Is(err, kernel.ErrRefused) && !errors.As(err, &verifier) {
		c.Engine, c.Why = Oracle, err.Error()
		return NewOn(p, c.Link, c.Engine)
	}
	return j, err
}

// String says who judges, for a person.
func (c *Choice) String() string {
	s := map[Engine]string{
		Oracle: "oracle", Compiled: "compiled program", Both: "oracle and compiled program",
	}[c.Engine]
	if c.Why != "" {
		s += "; the compiled program was not run: " + c.Why
	}
	return s
}

// Entry is an entry of a dynamic set.
type Entry struct {
	Set *policy.Set
	policy.Element
}

// Judge judges frames by one policy. It is not safe for concurrent use.
type Judge struct {
	policy *policy.Policy
	link   packet.Link
	slots  []policy.Slot
	engine Engine
	oracle *oracle.Evaluator
	short  *loader.Runner // nil for Oracle
	long   *loader.Runner // for frames of several buffers; made when the first one comes
	last   oracle.Record  // of the last frame that the oracle has judged
	added  []Entry
	began  time.Time // the time of the first packet that has one
	passed time.Duration
}

// Packets are judged by a clock of their own, in jiffies of a millisecond: it stands still unless
// At says what time it is.
const (
	hz    = 1000
	start = 1 << 33 // jiffies
)

// At is the time of the packets that follow: limits go by it. It counts from the first time on, and
// never goes back.
func (j *Judge) At(t time.Time) {
	if t.IsZero() {
		return
	}
	if j.began.IsZero() {
		j.began = t
	}
	j.pass(max(0, t.Sub(j.began)-j.passed))
}

// pass lets time pass.
func (j *Judge) pass(d time.Duration) {
	j.passed += d
	for _, r := range j.runners() {
		r.SetClock(j.jiffies())
	}
}

// Tell has the kernel tell nothing but this of the packets that follow.
func (j *Judge) Tell(all []policy.Told) {
	all = j.policy.Told(all)
	j.oracle.Untell()
	for _, r := range j.runners() {
		r.Untell()
	}
	for _, t := range all {
		j.oracle.Tell(t.Field, t.Value)
		for _, r := range j.runners() {
			r.Tell(t.Field, t.Value)
		}
	}
}

// Leave judges a frame that leaves by the interface. Where the policy says nothing of what leaves,
// it passes, and the slot is -1.
func (j *Judge) Leave(frame []byte) (Verdict, error) {
	v := Verdict{Long: j.engine != Oracle && len(frame) > loader.MaxFrame}
	res := j.oracle.LeaveInto(&j.last, frame)
	v.Decision = Decision{res.Slot, res.Action}
	if !j.oracle.Leaving() {
		v.Slot = -1
	}
	if v.Long {
		return v, nil
	}
	for _, r := range j.runners() {
		var d Decision
		var err error
		if d.Slot, d.Action, err = r.EvalLeaving(frame); err != nil {
			return v, err
		}
		switch {
		case j.engine == Compiled:
			v.Decision = d
		case d != v.Decision:
			v.Differs, v.Compiled = true, d
		}
	}
	return v, nil
}

func (j *Judge) jiffies() uint64 { return start + uint64(j.passed/(time.Second/hz)) }

// now returns the same for the oracle.
func (j *Judge) now() time.Time {
	return time.Unix(0, int64(j.jiffies())*int64(time.Second/hz))
}

// New makes a judge of Ethernet frames with empty dynamic sets; close it.
func New(p *policy.Policy, e Engine) (*Judge, error) { return NewOn(p, packet.Ethernet, e) }

// NewOn is New for frames of a device of that link layer.
func NewOn(p *policy.Policy, link packet.Link, e Engine) (*Judge, error) {
	j := &Judge{policy: p, link: link, slots: p.Slots(), engine: e, oracle: oracle.NewOn(p, link)}
	j.oracle.SetClock(j.now)
	if e == Oracle {
		return j, nil
	}
	// Two programs would have budgets, connections, proofs and datagrams of their own.
	var err error
	remembers := p.Remembers()
	if j.short, err = j.newRunner(remembers); remembers {
		j.long = j.short
	}
	return j, err
}

func (j *Judge) newRunner(frags bool) (*loader.Runner, error) {
	prog, err := codegen.Compile(j.policy, codegen.Target{Link: j.link, Trace: true, Frags: frags,
		Clock: true, HZ: hz})
	if err != nil {
		return nil, err
	}
	r, err := loader.NewRunner(prog)
	if err == nil {
		r.SetClock(j.jiffies())
	}
	return r, err
}

// Engine returns who judges.
func (j *Judge) Engine() Engine { return j.engine }

// Slots returns the slots of the policy. Verdicts are indices of these.
func (j *Judge) Slots() []policy.Slot { return j.slots }

// Explain judges a frame by the oracle alone, and tells its story.
func (j *Judge) Explain(frame []byte) oracle.Trace { return j.oracle.Explain(frame) }

// Story returns how the oracle has judged the last frame that it was given. It changes nothing.
func (j *Judge) Story() oracle.Trace { return j.oracle.Story(&j.last) }

// oneBuffer is the longest frame that surely lies in the first buffer of a run: a page without the
// headroom and skb_shared_info (net/bpf/test_run.c). Longer ones are for the program that is
// attached where the MTU is large.
const oneBuffer = 3400

// runnerFor returns the compiled program for a frame of so many bytes.
func (j *Judge) runnerFor(length int) (*loader.Runner, error) {
	if length <= oneBuffer || j.short == j.long {
		return j.short, nil
	}
	if j.long == nil {
		r, err := j.newRunner(true)
		if err != nil {
			return nil, err
		}
		j.long = r
		for _, e := range j.added {
			if err := addTo(r, e); err != nil {
				return nil, err
			}
		}
	}
	return j.long, nil
}

func addTo(r *loader.Runner, e Entry) error {
	for _, b := range e.Blocks() {
		entry := sets.EntryOf(b, sets.Forever)
		if err := r.SetAdd(e.Set.Name, entry); err != nil {
			return err
		}
	}
	return nil
}

func (j *Judge) runners() []*loader.Runner {
	return slices.DeleteFunc(slices.Compact([]*loader.Runner{j.short, j.long}),
		func(r *loader.Runner) bool { return r == nil })
}

// Add puts entries into dynamic sets, without a lease.
func (j *Judge) Add(entries ...Entry) error {
	for _, e := range entries {
		if err := j.oracle.AddEntry(e.Set.Name, e.Element, time.Time{}); err != nil {
			return err
		}
		for _, r := range j.runners() {
			if err := addTo(r, e); err != nil {
				return err
			}
		}
		j.added = append(j.added, e)
	}
	return nil
}

// Empty takes out again what was added.
func (j *Judge) Empty() error {
	for _, e := range j.added {
		if err := j.oracle.DelEntry(e.Set.Name, e.Element); err != nil {
			return err
		}
		for _, r := range j.runners() {
			for _, b := range e.Blocks() {
				r.SetDel(e.Set.Name, b)
			}
		}
	}
	j.added = nil
	return nil
}

// Decision is a verdict and the slot that gave it.
type Decision struct {
	Slot   int // of Slots
	Action action.Action
}

// Verdict is the engine's decision on one frame.
type Verdict struct {
	Decision          // the oracle's, or that of the compiled program alone
	Differs  bool     // with Both: the compiled program says something else
	Compiled Decision // which is this
	Long     bool     // the oracle's alone, whatever the engine: the kernel runs no frame so long
}

// Frame judges one frame.
func (j *Judge) Frame(frame []byte) (Verdict, error) {
	v := Verdict{Long: j.engine != Oracle && len(frame) > loader.MaxFrame}
	if j.engine != Compiled || v.Long {
		r := j.oracle.EvalInto(&j.last, frame)
		v.Decision = Decision{r.Slot, r.Action}
	}
	if j.engine == Oracle || v.Long {
		return v, nil
	}
	r, err := j.runnerFor(len(frame))
	if err != nil {
		return v, err
	}
	var d Decision
	d.Slot, d.Action, err = r.Eval(frame)
	switch {
	case err != nil:
		return v, err
	case j.engine == Compiled:
		v.Decision = d
	case d != v.Decision:
		v.Differs, v.Compiled = true, d
	}
	return v, nil
}

// Close unloads the compiled program.
func (j *Judge) Close() {
	for _, r := range j.runners() {
		r.Close()
	}
}
