package spec

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
)

// namedFields are those whose values are places in lists of names.
var namedFields = [...]field.Field{field.User, field.Group, field.Service, field.Container}

// toldOfSender returns what the kernel is to tell of a packet that leaves, by its words. One that
// names a sender is of this machine, and of nobody else; what its words do not say of numbers is
// unknown.
func toldOfSender(words []ast.Term) (all []policy.Told) {
	sent, said := false, map[field.Field]bool{}
	for i := range words {
		t := &words[i]
		if t.Field.Info().Kernel != field.Leaving {
			continue
		}
		said[t.Field] = true
		one := policy.Told{Field: t.Field}
		switch t.Kind {
		case ast.Sender:
			one.Name = syntax.NameIn(t.Value.Elems[0].Text)
		case ast.Number:
			r, _ := literal.Numbers[t.Field].One(t.Value.Elems[0].Text)
			one.Value = r.Lo
		default:
			r, _ := t.Field.Named(t.Name)
			one.Value = r.Lo
		}
		sent = sent || t.Field != field.Local || one.Value == 1
		all = append(all, one)
	}
	if !sent {
		return all
	}
	if !said[field.Local] {
		all = append(all, policy.Told{Field: field.Local, Value: 1})
	}
	for _, f := range namedFields {
		if !said[f] {
			all = append(all, policy.Told{Field: f})
		}
	}
	return all
}

// specSender checks a word of a packet about its sender; it returns false after an error.
func specSender(c *diag.Collector, t *ast.Term) bool {
	var p diag.Problem
	switch t.Kind {
	case ast.Number:
		_, p = literal.Numbers[t.Field].One(t.Value.Elems[0].Text)
	case ast.Sender:
		_, p = literal.Sender(t.Field, t.Value.Elems[0].Text)
	}
	if p.Found() {
		c.Report(t.Value.Pos, p)
	}
	return !p.Found()
}
