package rings

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// Warn warns of rings that are not read as somebody may expect.
func Warn(p *policy.Policy, tree *ast.File) diag.Diagnostics {
	c := &diag.Collector{File: tree.Name}
	first := ""
	for _, r := range p.Rules {
		switch {
		case r.Ring == nil || r.Ring.Name == first:
		case first == "":
			first = r.Ring.Name
		default:
			c.Warnf(r.Pos.Mark(), "redirect to one ring what one program looks at; else each "+
				"reads queues of its own: levee ring read --queue N.", "rings %q and %q cannot be "+
				"read from the same receive queue: the kernel has one reader for each", first,
				r.Ring.Name)
			return tree.Diagnostics(c)
		}
	}
	return nil
}
