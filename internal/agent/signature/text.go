package signature

import (
	"fmt"
	"slices"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/syntax"
)

// Policy returns the rules as a policy by themselves, which passes everything else.
func (p *Proposal) Policy() []byte {
	f, _ := syntax.Parse("none", []byte("default pass\n"))
	return p.Into(f)
}

// Into returns a policy with the rules in it, each where it should stand, as `levee fmt` lays it
// out. f is the policy of Limits, parsed without errors; it is changed.
func (p *Proposal) Into(f *ast.File) []byte {
	notes := "# " + p.Sentence + "\n"
	for _, n := range p.Notes {
		notes += "# " + n + "\n"
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		insert(f, notes+"# "+p.Figures(r)+"\n"+r.Text, func(s ast.Stmt) bool {
			return last(s) || r.Before != nil && s.Place().Line == r.Before.Pos.Line
		})
		notes = ""
	}
	if p.Tail != "" {
		insert(f, p.Tail, last)
	}
	return ast.Format(f)
}

// last says whether a statement ends the rules for what arrives.
func last(s ast.Stmt) bool {
	d, ok := s.(*ast.Default)
	return ok && !d.Out
}

// insert puts a statement in front of the first for which here holds.
func insert(f *ast.File, text string, here func(ast.Stmt) bool) {
	if at := slices.IndexFunc(f.Stmts, here); at >= 0 {
		made, _ := syntax.Parse("proposal", []byte(text+"\n"))
		// a line of its own would be taken for one of the policy
		f.Stmts = slices.Insert(f.Stmts, at, unplaced(made.Stmts)...)
	}
}

// unplaced are statements whose place is in no file.
func unplaced(all []ast.Stmt) []ast.Stmt {
	for _, s := range all {
		if r, ok := s.(*ast.Rule); ok {
			r.Pos = diag.Pos{}
		}
	}
	return all
}

// Figures says what a rule drops of both samples.
func (p *Proposal) Figures(r *Rule) string {
	passed := p.Flood.Passed()
	text := fmt.Sprintf("coverage %s, %d of %d packets; collateral ",
		percent(share(r.Flood, passed)), r.Flood, passed)
	if p.Good.Packets == 0 {
		return text + "unknown"
	}
	return text + fmt.Sprintf("%s, %d of %d (at most %s by 95 %% confidence)",
		percent(share(r.Good, p.Good.Packets)), r.Good, p.Good.Packets,
		percent(highest(r.Good, p.Good.Packets)))
}

func share(k, n int) float64 {
	if n == 0 {
		return 0
	}
	return float64(k) / float64(n)
}
