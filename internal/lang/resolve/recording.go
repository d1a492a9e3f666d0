package resolve

import (
	"fmt"
	"slices"

	"levee/internal/lang/ast"
	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
	"levee/internal/lang/syntax"
)

// Whole returns a policy with what its set files held in the place of their names: its own text is
// all that it takes to put it in force. It is laid out as Format does.
func Whole(name string, src []byte, files []setfile.File) ([]byte, error) {
	p, ds := Parse(name, src, setfile.Recorded(files))
	if p == nil {
		return nil, fmt.Errorf("%s cannot be read again: %s", name, ds[0].Message)
	}
	f, _ := syntax.Parse(name, src)
	f.Stmts = newResolver(f, setfile.Recorded(files)).stmts
	limits := map[bool][]*policy.Rule{false: p.Limits()}
	if out := p.Leaving(); out != nil {
		limits[true] = out.Limits()
	}
	for _, s := range f.Stmts {
		if rule, ok := s.(*ast.Rule); ok && rule.Limit != nil {
			side := limits[rule.Out]
			inlineRates(rule.Limit.Rates, side[0].Limit.Rates)
			limits[rule.Out] = side[1:]
		}
		set, ok := s.(*ast.Set)
		if ok && set.Dynamic != nil && set.Dynamic.Path != nil {
			inlineBegin(set, p)
		}
		if !ok || set.Path == nil && set.MMDB == nil {
			continue
		}
		list := &ast.Value{List: true}
		for _, of := range p.Sets {
			if of.Name == set.Name.Text {
				for text := range of.Texts() {
					list.Elems = append(list.Elems, ast.Elem{Text: text})
				}
			}
		}
		if len(list.Elems) == 0 { // no list can be empty
			set.MMDB, set.Path = nil, &ast.Word{Text: policy.EmptyFile}
			continue
		}
		set.MMDB, set.Path, set.List = nil, nil, list
	}
	return ast.Format(f), nil
}

// inlineRates puts rates in the place of their file.
func inlineRates(s *ast.Rates, rates *policy.Rates) {
	if s == nil || s.Path == nil {
		return
	}
	s.Path, s.List = nil, &ast.Value{List: true}
	for i := range rates.Entries {
		s.List.Elems = append(s.List.Elems, ast.Elem{Text: rates.Entries[i].Text()})
	}
}

// inlineBegin puts the entries that a set begins with in the place of their file.
func inlineBegin(s *ast.Set, p *policy.Policy) {
	of := p.Sets[slices.IndexFunc(p.Sets,
		func(o *policy.Set) bool { return o.Name == s.Name.Text })]
	s.Dynamic.Path = nil
	if len(of.Begin) == 0 {
		return
	}
	s.Dynamic.From = &ast.Value{List: true}
	for _, e := range of.Begin {
		s.Dynamic.From.Elems = append(s.Dynamic.From.Elems, ast.Elem{Text: e.String()})
	}
}
