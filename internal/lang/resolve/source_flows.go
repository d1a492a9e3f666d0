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
	"levee/internal/packet"
)

// sourceFlows says which flows a source reads: what its terms name, and else those to the ports of
// the kind. Few terms mean something here: a flow is chosen by its first packet, before anything is
// known of it.
func (r *resolver) sourceFlows(s *ast.Source, row *inlet.Row, out *policy.Source) {
	kind := s.At.Text
	protos, ports := row.Flows(kind)
	of := inlet.Flows{Protos: protos}
	errors := r.c.Errors()
	all := r.resolveTerms(s.Terms, nil)
	r.checkTogether(all)
	for i := range all {
		t, at := &all[i].term, all[i].src
		hint := "name the protocol, ports, and addresses: " + row.Name + " " + kind +
			" port 8022 from 192.0.2.0/24."
		switch {
		case t.Not || t.Set != nil || t.Given != nil:
			r.c.Errorf(at.Pos, hint, "a source cannot choose flows by %q", at.Words())
		case t.Field == field.Proto:
			of.Protos = slices.DeleteFunc(slices.Clone(protos), func(p uint8) bool {
				return !slices.ContainsFunc(t.Ranges, func(r field.Range) bool {
					return r.Lo <= uint64(p) && uint64(p) <= r.Hi
				})
			})
			if len(of.Protos) == 0 || len(t.Ranges) > len(of.Protos) {
				r.c.Errorf(at.Pos, "leave it out.", "%s is read of %s alone", kind, inWords(protos))
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

// checkFlows looks at sources that read datagrams, of which those count alone whose flow a `prove`
// proves. A kind that is read of TCP, too, is read of that where there is none.
func (r *resolver) checkFlows() {
	for _, s := range r.pol.Sources {
		of := &s.Place.Flows
		if !slices.Contains(of.Protos, packet.ProtoUDP) || r.provesPorts(of.Ports) {
			continue
		}
		if len(of.Protos) > 1 {
			of.Protos = []uint8{packet.ProtoTCP}
			continue
		}
		at := diag.Pos{Line: s.Pos.Line, Col: s.Pos.Col, EndCol: s.Pos.Col + 6}
		as := source.Input(s.Place.Input).Proof(s.Place.At)
		r.c.Warnf(at, "add a `prove` for them, as "+as+", and a rule "+
			"that asks for `proven flow`.", "nothing that this source reads ever counts: no flow "+
			"to these ports is ever proven")
	}
}

// provesPorts reports whether flows of UDP to any of some ports may be proven.
func (r *resolver) provesPorts(ports []inlet.Ports) bool {
	if !r.pol.Asks(field.ProvenFlow) {
		return false
	}
	for _, p := range r.pol.Proves {
		for _, of := range p.Ports {
			if slices.ContainsFunc(ports, func(at inlet.Ports) bool {
				return of.Lo <= uint64(at.Last) && uint64(at.First) <= of.Hi
			}) {
				return true
			}
		}
	}
	return false
}

// inWords returns the protocols of a kind of stream.
func inWords(protos []uint8) string {
	words := make([]string, len(protos))
	for i, p := range protos {
		words[i] = map[uint8]string{6: "TCP", 17: "UDP"}[p]
	}
	return strings.Join(words, " and ")
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
