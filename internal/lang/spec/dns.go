package spec

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/packet"
	"levee/internal/packet/dns"
)

// specDNS makes the message of a packet of a test from its words for DNS, if it has any.
func specDNS(c *diag.Collector, spec *packet.Spec, words []ast.Term) bool {
	m := dns.Message{Type: 1}
	any, ok := false, true
	for i := range words {
		t := &words[i]
		if !t.Field.OfMessage() {
			continue
		}
		any = true
		var p diag.Problem
		switch t.Field {
		case field.DNSQuery:
		case field.DNSResponse:
			m.Response = true
		case field.DNSMalformed:
			m.Malformed = true
		case field.DNSName:
			var n dnsname.Pattern
			if n, p = literal.Name(t.Value.Elems[0].Text); !p.Found() &&
				(n.Below || !ast.IsQuoted(t.Value.Elems[0].Text)) {
				p = diag.Problemf("write one name: dns name \"www.example.com\".",
					"a packet has one name here")
			}
			m.Question, m.Name = true, n.Name
		default:
			rg, q := literal.Numbers[t.Field].One(t.Value.Elems[0].Text)
			p = q
			switch t.Field {
			case field.DNSType:
				m.Question, m.Type = true, uint16(rg.Lo)
			case field.DNSOpcode:
				m.Opcode = uint8(rg.Lo)
			case field.DNSSize:
				m.EDNS, m.Size = true, uint16(rg.Lo)
			}
		}
		if p.Found() {
			c.Report(t.Value.Elems[0].Pos, p)
			ok = false
		}
	}
	if any && ok {
		spec.Payload = dns.Query(m)
		if spec.Proto == nil {
			spec.Proto = new(uint8(packet.ProtoUDP))
		}
	}
	return ok
}
