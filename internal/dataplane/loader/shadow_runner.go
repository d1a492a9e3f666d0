package loader

import (
	"errors"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/plan"
	"levee/internal/filter/shadow"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// Judged returns what the program of a shadow is compiled for that is to judge beside this one.
func (r *Runner) Judged() plan.Judged {
	return plan.Judged{RowBytes: r.program.RowBytes, Slots: len(r.program.Slots)}
}

// Shadow loads a shadow beside the program, which hands it each frame from then on. The caller
// closes it before this one.
func (r *Runner) Shadow(p *codegen.Program) (*Runner, error) {
	sh, err := newRunner(p, map[string]*ebpf.Map{
		shadow.JudgedMap: r.Loaded.Holding(codegen.Counters)})
	if err != nil {
		return nil, err
	}
	err = r.Loaded.Holding(state.HoldsCapture).Put(uint32(state.Looks), sh.Loaded.Prog)
	if err != nil {
		return nil, errors.Join(kernel.Refuse(err, "have packets go to the shadow"), sh.Close())
	}
	generation.TurnRows(r.counters, &store.Description{Slots: make([]store.Slot,
		len(r.program.Slots)),
		RowBytes: r.program.RowBytes}, state.Looks, true)
	return sh, nil
}

// Compared returns what a shadow has noted.
func (r *Runner) Compared() (shadow.Contents, error) {
	m := r.Loaded.Holding(state.HoldsPairs)
	var all []byte
	for cpu := range m.MaxEntries() {
		b, err := m.LookupBytes(cpu)
		if err != nil {
			return shadow.Contents{}, kernel.Refuse(err, "read the memory of the shadow")
		}
		all = append(all, b...)
	}
	return shadow.Read(all), nil
}
