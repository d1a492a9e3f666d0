package plan

import (
	"errors"

	"levee/internal/filter/state"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// Refused returns an error of New as a diagnostic, where it has a place in the policy; else nil.
func Refused(p *policy.Policy, tree *ast.File, err error) diag.Diagnostics {
	var room *state.NoMemory
	if !errors.As(err, &room) {
		return nil
	}
	c := &diag.Collector{File: tree.Name}
	c.Errorf(p.ConnectionsPos.Mark(), room.Do()+".", "%s", room.What())
	return tree.Diagnostics(c)
}
