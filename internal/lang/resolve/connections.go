package resolve

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/literal"
)

// maxConnections resolves `connections max N`.
func (r *resolver) maxConnections(w ast.Word) {
	n, p := literal.Connections(w.Text)
	r.problem(w.Pos, p)
	r.pol.MaxConnections, r.pol.ConnectionsPos = n, r.pos(w.Pos)
}
