package oracle

import "levee/internal/lang/policy"

// Forget has an evaluator know of no packet, no entry of a dynamic set and nothing that the kernel
// tells, as if it were made anew, which takes longer. The clock stays, and what cookies were told
// of the machine.
func (e *Evaluator) Forget() {
	for s, entries := range e.sets {
		if s.Kind == policy.Dynamic {
			*entries = *newAddressSet(nil)
		}
	}
	for s, entries := range e.ends {
		if s.Kind == policy.Dynamic {
			*entries = *newEndpointSet(nil)
		}
	}
	for _, entries := range e.filled {
		clear(*entries)
	}
	e.Untell()
	e.forget()
	if e.leaving != nil {
		e.leaving.forget()
		e.leaving.flows = e.flows
	}
}

// forget has one side know of no packet.
func (e *Evaluator) forget() {
	e.flows = map[connectionKey]*connection{}
	for l := range e.limits {
		e.limits[l] = &budgets{l, map[string]int64{}}
	}
	for g := range e.greys {
		e.greys[g] = &greylist{of: g, clients: map[string]*client{}}
	}
	e.cookies.forget()
	if e.echoes != nil {
		e.echoes.forget()
	}
	clear(e.streams)
	if e.frags != nil {
		*e.frags = datagrams{of: map[datagramKey]*datagram{}}
	}
}

// Remembered counts what the evaluator remembers, by the rows of package state that it models.
func (e *Evaluator) Remembered() map[string]int {
	out := map[string]int{
		"connections": len(e.flows),
		"cookies":     len(e.cookies.meters) + len(e.cookies.proven),
		"echoes":      0,
		"fragments":   0,
		"greylists":   0,
		"limits":      0,
		"streams":     len(e.streams),
	}
	if e.echoes != nil {
		out["echoes"] = len(e.echoes.given) + len(e.echoes.proven)
	}
	if e.frags != nil {
		out["fragments"] = len(e.frags.of)
	}
	for _, g := range e.greys {
		out["greylists"] += len(g.clients)
	}
	for _, b := range e.limits {
		out["limits"] += len(b.full)
	}
	return out
}
