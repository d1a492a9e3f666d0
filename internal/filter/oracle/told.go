package oracle

import "levee/internal/lang/field"

// told holds the kernel's answers about a packet, by field. A field without one is unknown.
type told [field.NumFields]struct {
	known bool
	v     uint64
}

// Tell has the kernel tell a value of the packets that follow.
func (e *Evaluator) Tell(f field.Field, v uint64) {
	e.told[f].known, e.told[f].v = true, v
	if e.leaving != nil {
		e.leaving.Tell(f, v)
	}
}

// Untell has the kernel answer nothing about the packets that follow.
func (e *Evaluator) Untell() {
	e.told = told{}
	if e.leaving != nil {
		e.leaving.Untell()
	}
}

// tell puts what the kernel tells into the fields of a packet that was read.
func (vs *values) tell(is *told) {
	for _, f := range kernelTells {
		vs[f].present = vs[f].present && is[f].known
		vs[f].lo = is[f].v
	}
}

var kernelTells = func() (all []field.Field) {
	for _, f := range field.Remembered() {
		if f.Info().Kernel != field.NoSide {
			all = append(all, f)
		}
	}
	return all
}()
