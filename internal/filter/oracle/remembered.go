package oracle

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
