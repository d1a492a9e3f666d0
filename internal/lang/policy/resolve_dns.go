package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
	"levee/internal/lang/syntax"
	"levee/internal/packet"
	"levee/internal/packet/dns"
)

// maxNameLists is how many lists of names rules may ask for: each has a table and a function.
const maxNameLists = 64

// parseName reads a name of the DNS, in quotes or, in a file, without.
func parseName(text string) (dnsname.Pattern, problem) {
	if plain := syntax.NameIn(text); plain != text {
		if _, err := netip.ParsePrefix(plain); err == nil {
			return dnsname.Pattern{}, notName(plain)
		}
		text = plain
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return dnsname.Pattern{}, notName(text)
	}
	p, err := dnsname.Parse(text)
	if err != nil {
		return p, problemf(err.Hint, "%s", err.Message)
	}
	return p, problem{}
}

func notName(text string) problem {
	return problemf("write addresses without quotes, in a set of their own.",
		"%s is an address, not a name", short(text))
}

// fileType resolves `of TYPE` behind the path of a file.
func (r *resolver) fileType(f *setFile, of ast.Word) bool {
	for t := Addresses; t <= Names; t++ {
		if of.Text == t.plural() {
			f.typ = t
			return true
		}
	}
	hint := "write: of addresses, of ports, of services, of endpoints or of names."
	r.problem(of.Pos, problemf(hint, "%q is not a type that a file can have", short(of.Text)))
	return false
}

// dnsNames resolves the value of `dns name`.
func (r *resolver) dnsNames(t *Term, s *ast.Term) bool {
	v, e := s.Value, &s.Value.Elems[0]
	if !v.List && !ast.IsQuoted(e.Text) {
		if checkSetName(e.Text).found() {
			r.c.Errorf(e.Pos, "write the name in quotes: dns name \""+short(e.Text)+"\".",
				"%q cannot name a set", short(e.Text))
			return false
		}
		d := r.lookup(e)
		if d == nil {
			return false
		}
		if d.set.Type != Names {
			r.c.Errorf(e.Pos, useHint(d.set, e.Text), "%q is a set of %s, not of names",
				short(e.Text), d.set.Type.plural())
			return false
		}
		t.Set = d.set
		for _, l := range r.pol.NameLists {
			if l.Set == d.set {
				t.Names = l
				return true
			}
		}
		return r.nameList(t, s, d.set.Patterns)
	}
	l := r.newList(len(v.Elems))
	ok := l.all(v, Names, listOf+Names.plural())
	r.merge(&l.elements, v.Pos)
	names := slices.Clone(l.names)
	r.done(&l)
	return ok && !r.overspent && r.nameList(t, s, names)
}

// nameList gives a term a list of names of its own.
func (r *resolver) nameList(t *Term, s *ast.Term, patterns []dnsname.Pattern) bool {
	n := len(r.pol.NameLists)
	if n == maxNameLists {
		r.c.Errorf(s.Pos, "put the names of several rules into one set.",
			"rules ask for more than %d lists of names", maxNameLists)
		return false
	}
	t.Names = &NameList{Patterns: patterns, Number: n, Set: t.Set}
	r.pol.NameLists = append(r.pol.NameLists, t.Names)
	return true
}

// dnsTypeHint is for a word that is no type.
func dnsTypeHint(text string) string {
	if _, known := field.DNSType.Named(strings.ToUpper(text)); known {
		return didYouMean(strings.ToUpper(text))
	}
	return "write a type such as A, AAAA or ANY, or its number."
}

// dnsOpcodeHint is for a word that is no opcode.
func dnsOpcodeHint(string) string {
	return "opcodes are query, iquery, status, notify, update and dso, or numbers."
}

// dnsTerms says where terms on DNS messages cannot stand: in rules to protect, which promise what
// is read off every packet, and within tunnels.
func (r *resolver) dnsTerms(all []resolvedTerm, why string) {
	for i := range all {
		if t := &all[i]; t.term.Field.OfMessage() {
			r.c.Errorf(t.src.Pos, "ask for addresses and ports there.",
				"%s cannot look into DNS messages", why)
		}
	}
}

// specDNS makes the message of a packet of a test from its words for DNS, if it has any.
func (r *resolver) specDNS(spec *packet.Spec, words []ast.Term) bool {
	m := dns.Message{Type: 1}
	any, ok := false, true
	for i := range words {
		t := &words[i]
		if !t.Field.OfMessage() {
			continue
		}
		any = true
		var p problem
		switch t.Field {
		case field.DNSQuery:
		case field.DNSResponse:
			m.Response = true
		case field.DNSMalformed:
			m.Malformed = true
		case field.DNSName:
			var n dnsname.Pattern
			if n, p = parseName(t.Value.Elems[0].Text); !p.found() &&
				(n.Below || !ast.IsQuoted(t.Value.Elems[0].Text)) {
				p = problemf("write one name: dns name \"www.example.com\".",
					"a packet has one name here")
			}
			m.Question, m.Name = true, n.Name
		default:
			rg, q := numbers[t.Field].one(t.Value.Elems[0].Text)
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
		if p.found() {
			r.problem(t.Value.Elems[0].Pos, p)
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

// nameKey resolves the key `dns-name` of a limit, and how many labels count.
func (r *resolver) nameKey(k *ast.Key, out Key) (Key, bool) {
	if k.Bits != nil {
		n, err := strconv.ParseUint(k.Bits.Text, 10, 8)
		if err != nil || n < 1 || n > dnsname.MaxLabels {
			r.c.Errorf(k.Bits.Pos, "write how many labels at the end of the name count: "+
				"dns-name/2 is example.com of www.example.com.",
				"%q is not a number of labels from 1 to %d", short(k.Bits.Text), dnsname.MaxLabels)
			return out, false
		}
		out.Labels = int(n)
	}
	return r.keyTimes(k, out)
}
