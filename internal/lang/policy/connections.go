package policy

import (
	"strconv"

	"levee/internal/lang/ast"
)

// MostConnections is the largest number of connections that a policy may have known at once.
const MostConnections = 1 << 22

// maxConnections resolves `connections max N`.
func (r *resolver) maxConnections(w ast.Word) {
	n, p := parseConnections(w.Text)
	if p.found() {
		r.problem(w.Pos, p)
	}
	r.pol.MaxConnections, r.pol.ConnectionsPos = n, r.pos(w.Pos)
}

func parseConnections(text string) (int, problem) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n < 1 || n > MostConnections {
		return 0, maxProblem("connections max", text, MostConnections)
	}
	return int(n), problem{}
}
