package main

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/dataplane"
	"levee/internal/filter/codegen"
	"levee/internal/filter/oracle"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// Engines that judge packets offline.
const (
	engineOracle = "oracle" // the reference in Go
	engineBPF    = "bpf"    // the compiled program, in the kernel
	engineBoth   = "both"   // both, compared
)

// engines judges packets with the oracle, the compiled program, or both.
type engines struct {
	p      *policy.Policy
	slots  []policy.Slot
	kind   string
	oracle *oracle.Evaluator
	bpf    *dataplane.Runner // nil for oracle alone
	large  *dataplane.Runner // for frames of several buffers; made when the first one comes
	added  []entry           // to the dynamic sets
}

// choice is what --engine asks for, or what the privileges allow.
type choice struct {
	kind string
	auto bool   // not asked for: less will do
	why  string // of an automatic choice: why not both
}

// chooseEngine checks --engine; "" becomes both where the process may load programs.
func (e *env) chooseEngine(cmd *cobra.Command, want string) (choice, error) {
	switch want {
	case engineOracle:
		return choice{kind: want}, nil
	case engineBPF, engineBoth:
		if err := e.privileged(); err != nil {
			return choice{}, refusedf("the compiled program cannot be run here: %w; or use --engine oracle", err)
		}
		return choice{kind: want}, nil
	case "":
		if err := e.privileged(); err != nil {
			return choice{kind: engineOracle, auto: true, why: err.Error()}, nil
		}
		return choice{kind: engineBoth, auto: true}, nil
	}
	return choice{}, usagef(cmd, "--engine %q: use oracle, bpf or both", want)
}

// engines makes the engines for a policy. Where nothing was asked for and the kernel lacks what the compiled program
// needs, the oracle judges alone, and the choice says why. A program that the verifier refuses is an error in any case.
func (c *choice) engines(p *policy.Policy) (*engines, error) {
	g, err := newEngines(p, c.kind)
	var verifier *kernel.Verifier
	if c.auto && errors.Is(err, kernel.ErrRefused) && !errors.As(err, &verifier) {
		c.kind, c.why = engineOracle, err.Error()
		return newEngines(p, c.kind)
	}
	return g, err
}

// String says who judges, for a person.
func (c *choice) String() string {
	s := map[string]string{engineOracle: "oracle", engineBPF: "compiled program", engineBoth: "oracle and compiled program"}[c.kind]
	if c.why != "" {
		s += "; the compiled program was not run: " + c.why
	}
	return s
}

// newEngines makes what kind needs, with empty dynamic sets; close it.
func newEngines(p *policy.Policy, kind string) (*engines, error) {
	g := &engines{p: p, slots: p.Slots(), kind: kind, oracle: oracle.New(p)}
	if kind == engineOracle {
		return g, nil
	}
	var err error
	g.bpf, err = newRunner(p, false)
	return g, err
}

func newRunner(p *policy.Policy, frags bool) (*dataplane.Runner, error) {
	prog, err := codegen.Compile(p, codegen.Target{Trace: true, Frags: frags})
	if err != nil {
		return nil, err
	}
	return dataplane.NewRunner(prog)
}

// oneBuffer is the longest frame that surely lies in the first buffer of a run: a page without the headroom and
// skb_shared_info (net/bpf/test_run.c). Longer ones are for the program that is attached where the MTU is large.
const oneBuffer = 3400

// runnerFor is the compiled program for a frame of so many bytes.
func (g *engines) runnerFor(length int) (*dataplane.Runner, error) {
	if length <= oneBuffer {
		return g.bpf, nil
	}
	if g.large == nil {
		r, err := newRunner(g.p, true)
		if err != nil {
			return nil, err
		}
		g.large = r
		for _, en := range g.added {
			if err := addTo(r, en); err != nil {
				return nil, err
			}
		}
	}
	return g.large, nil
}

func addTo(r *dataplane.Runner, en entry) error {
	for _, b := range en.Blocks() {
		if err := r.SetAdd(en.set.Name, dataplane.SetEntry{Prefix: b.Prefix, Service: b.Service, Lease: dataplane.Forever}); err != nil {
			return err
		}
	}
	return nil
}

func (g *engines) runners() []*dataplane.Runner {
	return slices.DeleteFunc([]*dataplane.Runner{g.bpf, g.large}, func(r *dataplane.Runner) bool { return r == nil })
}

// add puts an entry into a dynamic set, without a lease.
func (g *engines) add(en entry) error {
	if err := g.oracle.AddEntry(en.set.Name, en.Element, time.Time{}); err != nil {
		return err
	}
	for _, r := range g.runners() {
		if err := addTo(r, en); err != nil {
			return err
		}
	}
	g.added = append(g.added, en)
	return nil
}

// empty takes out again what was added.
func (g *engines) empty() error {
	for _, en := range g.added {
		if err := g.oracle.DelEntry(en.set.Name, en.Element); err != nil {
			return err
		}
		for _, r := range g.runners() {
			for _, b := range en.Blocks() {
				r.SetDel(en.set.Name, b)
			}
		}
	}
	g.added = nil
	return nil
}

// judgement is what the engines say of one packet. Without a difference, got and want are the same.
type judgement struct {
	slot    int
	action  policy.Action
	differs bool
	bpfSlot int // where the engines differ: what the compiled program said
	bpfAct  policy.Action
}

func (g *engines) judge(frame []byte) (judgement, error) {
	var j judgement
	if g.kind != engineBPF {
		r := g.oracle.Eval(frame)
		j.slot, j.action = r.Slot, r.Action
	}
	if g.bpf == nil {
		return j, nil
	}
	r, err := g.runnerFor(len(frame))
	if err != nil {
		return j, err
	}
	slot, action, err := r.Eval(frame)
	switch {
	case err != nil:
		return j, err
	case g.kind == engineBPF:
		j.slot, j.action = slot, action
	case slot != j.slot || action != j.action:
		j.differs, j.bpfSlot, j.bpfAct = true, slot, action
	}
	return j, nil
}

func (g *engines) close() {
	for _, r := range g.runners() {
		r.Close()
	}
}
