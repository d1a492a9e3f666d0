package resolve

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// inner resolves a match of the packet within a tunnel.
func (r *resolver) inner(t *policy.Term, s *ast.Term) bool {
	errors := r.c.Errors()
	for i := range s.Terms {
		switch in := &s.Terms[i]; {
		case in.Kind == ast.Malformed:
			r.c.Errorf(in.Pos, "a packet that is malformed within a tunnel is malformed: write a "+
				"rule as drop malformed.", "\"malformed\" stands alone")
		case in.Field.Info().Remembered:
			r.c.Errorf(in.Pos, "it is known of the packets that carry others: write it in "+
				"front of inner.", "%q cannot be asked of the packet within a tunnel", in.Words())
		case in.Field.OfMessage():
			r.c.Errorf(in.Pos, "ask for the port: inner( udp port 53 ).",
				"the DNS message of a packet within a tunnel is not looked into")
		case in.Field == field.SrcMAC || in.Field == field.DstMAC:
			r.c.Errorf(in.Pos, "write what its IP header has: from, to, proto.",
				"the packet within most tunnels has no Ethernet address")
		}
	}
	if r.c.Errors() != errors {
		return false
	}
	all := r.resolveTerms(s.Terms, nil)
	if r.c.Errors() == errors {
		r.checkTogether(all)
	}
	if r.c.Errors() != errors {
		return false
	}
	t.Inner = &policy.Inner{Match: r.keep(all), Number: len(*r.inners)}
	*r.inners = append(*r.inners, t.Inner)
	if len(*r.inners) == policy.MaxInners+1 {
		r.c.Errorf(s.Pos, "put what they share into sets.",
			"a policy has at most %d terms on what tunnels carry", policy.MaxInners)
	}
	return true
}

// protectInner refuses rules to protect that look into tunnels: what is malformed within is
// decided before them, so that the promise could not be kept.
func (r *resolver) protectInner(all []resolvedTerm) {
	for i := range all {
		if t := &all[i]; t.term.Inner != nil {
			r.c.Errorf(t.src.Pos, "protect the packets that carry it, by their addresses.",
				"a protect rule cannot look into tunnels")
		}
	}
}
