package resolve

import (
	"fmt"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// flags resolves `flags F` and `flags F/M`.
func (r *resolver) flags(t *policy.Term, s *ast.Term) bool {
	e := &s.Value.Elems[0]
	set, mask, slash := strings.Cut(e.Text, "/")
	if m := pfFlags(set); m != "" {
		if slash {
			m += "/" + pfFlags(mask)
		}
		r.c.Errorf(e.Pos, fmt.Sprintf("did you mean \"flags %s\"?", m),
			"%q are not TCP flags of levee", diag.Clip(e.Text))
		return false
	}
	value, none, p := literal.Flags(set)
	if !p.Found() && slash {
		var noMask bool
		t.Mask, noMask, p = literal.Flags(mask)
		switch {
		case p.Found():
		case noMask:
			p = diag.Problemf("after the slash stand the flags that are looked at.",
				"\"none\" cannot stand after the slash")
		case value&^t.Mask != 0:
			p = diag.Problemf("name before the slash only flags that stand after it too.",
				"%q can never hold: it wants a flag set that it does not look at",
				diag.Clip(e.Text))
		}
	} else if !p.Found() {
		t.Mask = value
		if none {
			p = diag.Problemf("say which flags must be clear: flags none/fin,syn,rst,psh,ack,urg.",
				"\"flags none\" looks at no flag")
		}
	}
	if p.Found() {
		r.problem(e.Pos, p)
		return false
	}
	t.Value = value
	return true
}

// pfFlags translates the flag letters of pf and tcpdump, or returns "".
func pfFlags(letters string) string {
	var names []string
	for _, c := range letters {
		name, ok := map[rune]string{'F': "fin", 'S': "syn", 'R': "rst", 'P': "psh", 'A': "ack",
			'U': "urg", 'E': "ece", 'W': "cwr"}[c]
		if !ok || len(letters) > 8 || letters == "PUSH" {
			return ""
		}
		names = append(names, name)
	}
	return strings.Join(names, ",")
}
