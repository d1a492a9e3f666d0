package resolve

import (
	"slices"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// senderArrives refuses a sender of a packet that arrives.
func (r *resolver) senderArrives(words []ast.Term) {
	for i := range words {
		if t := &words[i]; t.Field.Info().Kernel == field.Leaving {
			r.c.Errorf(t.Pos, "end the packet with: leaves expect pass, or leaves expect drop.",
				"%q is of packets that leave, and this one arrives", t.Words())
		}
	}
}

// arrives checks that a rule may be about what arrives.
func (r *resolver) arrives(s *ast.Rule) {
	for i := range s.Terms {
		if t := &s.Terms[i]; t.Field.Info().Kernel == field.Leaving {
			r.c.Errorf(t.Pos, "write the rule for what leaves: out "+s.Action+" ...",
				"%q is known of packets that leave: who sends those that arrive is on another "+
					"machine", t.Words())
		}
	}
}

// sender resolves the names of senders.
func (r *resolver) sender(t *policy.Term, s *ast.Term) bool {
	list := r.pol.Senders.Of(s.Field)
	if list == nil {
		return false
	}
	ok := true
	r.duplicates.begin(len(s.Value.Elems))
	for i := range s.Value.Elems {
		e := &s.Value.Elems[i]
		name, p := literal.Sender(s.Field, e.Text)
		if p.Found() {
			r.problem(e.Pos, p)
			ok = false
			continue
		}
		if r.duplicates.add(name) {
			r.c.Warnf(e.Pos, "remove one of them.", "%s stands in the list already",
				diag.Clip(name))
		}
		at := slices.Index(*list, name)
		if at < 0 {
			at = len(*list)
			*list = append(*list, strings.Clone(name)) // the source may go
		}
		if at == field.MaxNamed {
			r.c.Errorf(e.Pos, manyHint(s.Field), "a policy names at most %d of them: %s",
				field.MaxNamed, s.Words())
			return false
		}
		t.Ranges = append(t.Ranges, field.Range{Lo: uint64(at + 1), Hi: uint64(at + 1)})
		t.Senders = append(t.Senders, (*list)[at])
	}
	t.Ranges = field.Join(t.Ranges)
	slices.Sort(t.Senders)
	t.Senders = slices.Compact(t.Senders)
	return ok
}

// manyHint says how rules do with fewer names.
func manyHint(f field.Field) string {
	switch f {
	case field.User:
		return "ask for ranges of their numbers: uid 1000-1999."
	case field.Group:
		return "ask for ranges of their numbers: gid 1000-1999."
	}
	return "put them into a user of their own."
}

// gidsBesideMessages refuses what programs cannot ask together; a question becomes none.
func (r *resolver) gidsBesideMessages() {
	gid := policy.GIDBesideMessages(r.resolved[min(r.questions, len(r.resolved)):])
	if gid != nil {
		r.c.Errorf(gid.Pos.Mark(), "name the group: group adm.",
			"rules for what leaves ask for gids or look into DNS messages, not both")
	}
}
