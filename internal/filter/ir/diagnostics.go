package ir

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
)

// Diagnostics are findings as warnings, each with its line of the policy's text.
func Diagnostics(tree *ast.File, found []Finding) diag.Diagnostics {
	c := &diag.Collector{File: tree.Name}
	for _, f := range found {
		c.Warnf(f.Pos.Mark(), f.Hint, "%s", f.Message)
	}
	return tree.Diagnostics(c)
}
