package ir

import "levee/internal/lang/syntax"

// Diagnostics are findings as warnings, each with its line of the policy's text.
func Diagnostics(tree *syntax.File, found []Finding) syntax.Diagnostics {
	c := &syntax.Collector{File: tree.Name}
	for _, f := range found {
		c.Warnf(f.Pos.Mark(), f.Hint, "%s", f.Message)
	}
	return tree.Diagnostics(c)
}
