package resolve

import (
	"slices"
	"strings"

	"levee/internal/agent/source"
	"levee/internal/agent/source/inlet"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// sourceFlows says which flows a source reads: what its terms name, and else those to the ports of
// the kind. Few terms mean something here: a flow is chosen by its first packet, before anything is
// known of it.
func (r *resolver) sourceFlows(s *ast.Source, row *inlet.Row, out *policy.Source) {
	kind := s.At.Text
	proto, ports := row.Flows(kind)
	of := inlet.Flows{Proto: proto}
	errors := r.c.Errors()
	all := r.resolveTerms(s.Terms, nil)
	r.checkTogether(all)
	for i := range all {
		t, at := &all[i].term, all[i].src
		hint := "name the protocol, ports, and addresses: " + row.Name + " " + kind +
			" tcp port 22 from 192.0.2.0/24."
		switch {
		case t.Not || t.Set != nil || t.Given != nil:
			r.c.Errorf(at.Pos, hint, "a source cannot choose flows by %q", at.Words())
		case t.Field == field.Proto:
			if len(t.Ranges) != 1 || t.Ranges[0] != (field.Range{Lo: uint64(proto),
				Hi: uint64(proto)}) {
				r.c.Errorf(at.Pos, "leave it out.", "%s is read of %s alone", kind,
					map[uint8]string{6: "TCP", 17: "UDP"}[proto])
			}
		case t.Field == field.DstPort:
			for _, p := range t.Ranges {
				of.Ports = append(of.Ports, inlet.Ports{First: uint16(p.Lo), Last: uint16(p.Hi)})
			}
		case t.Field == field.SrcAddr:
			of.From = slices.Clone(t.Prefixes)
		case t.Field == field.DstAddr:
			of.To = slices.Clone(t.Prefixes)
		default:
			r.c.Errorf(at.Pos, hint, "a source cannot choose flows by %q", at.Words())
		}
	}
	for _, p := range ports {
		if !slices.ContainsFunc(all, func(t resolvedTerm) bool {
			return t.term.Field == field.DstPort
		}) {
			of.Ports = append(of.Ports, inlet.Ports{First: p, Last: p})
		}
	}
	if len(of.Ports) == 0 && r.c.Errors() == errors {
		r.c.Errorf(s.At.Pos, "write: "+row.Name+" "+kind+" port 8443.", "name the ports whose "+
			"flows are read")
	}
	out.Place.Match, out.Place.Flows = strings.Clone(s.Flows()), of
}

// sourceHas checks that events of a source can have a field.
func (r *resolver) sourceHas(w ast.Word, out *policy.Source) bool {
	row := source.Input(out.Place.Input)
	if row.Fields == nil {
		return true
	}
	fields := row.Fields(out.Place.At)
	if slices.Contains(fields, w.Text) {
		return true
	}
	hint := "there are " + strings.Join(fields, ", ") + "."
	if m := diag.Nearest(w.Text, fields); m != "" {
		hint = diag.DidYouMean(m)
	}
	r.c.Errorf(w.Pos, hint, "%s %s has no field %q", row.Name, out.Place.At, diag.Clip(w.Text))
	return false
}
