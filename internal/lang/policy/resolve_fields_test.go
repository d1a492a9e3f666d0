package policy

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"levee/internal/lang/field"
	"levee/internal/lang/syntax"
)

// samples are what is written of each row of the table of fields, by the field that it asks for.
func samples(ph *field.Phrase) map[string]field.Field {
	of := func(f field.Field, values ...string) map[string]field.Field {
		m := make(map[string]field.Field)
		for _, v := range values {
			m[strings.TrimSpace(ph.Word+" "+v)] = f
		}
		return m
	}
	switch ph.Form {
	case field.FormAlone:
		return of(ph.Field, "")
	case field.FormWord:
		return of(ph.Field, ph.Words...)
	case field.FormNumber:
		most := ph.Field.Info().Max
		m := of(ph.Field, fmt.Sprint(most), fmt.Sprintf("0-%d", most/2), fmt.Sprintf("{ 0, 2, %d }", most), "< 1", "!= 1")
		for _, n := range ph.Field.Info().Names {
			m[ph.Word+" "+n.Word] = ph.Field
		}
		return m
	case field.FormMAC:
		return of(ph.Field, "02:00:00:00:00:01", "{ 02:00:00:00:00:01, ff:ff:ff:ff:ff:ff }")
	case field.FormICMP:
		m := of(ph.Field, "8", "3/4", "133-137", "{ 3/4, 11 }")
		for _, n := range ph.Field.Info().Names {
			m[ph.Word+" "+n.Word] = ph.Field
		}
		return m
	case field.FormFlags:
		m := of(ph.Field, "none/syn,ack")
		for _, n := range ph.Field.Info().Names {
			m[ph.Word+" "+n.Word] = ph.Field
		}
		return m
	case field.FormAddress:
		m := of(ph.Field, "any", "192.0.2.1", "2001:db8::/32", "{ 10.0.0.0/8, 192.0.2.1-192.0.2.9 }", "hosts", "leased")
		service, endpoint := field.SrcService, field.SrcEndpoint
		if ph.Field == field.DstAddr {
			service, endpoint = field.DstService, field.DstEndpoint
		}
		for _, v := range []string{"tcp/80", "{ tcp/80, udp/53 }", "services", "openings"} {
			m[ph.Word+" "+v] = service
		}
		for _, v := range []string{"192.0.2.1 udp/53", "{ 192.0.2.1 gre, 192.0.2.1 tcp/80, 2001:db8::1 icmp6 }", "endpoints", "partners"} {
			m[ph.Word+" "+v] = endpoint
		}
		return m
	}
	return nil
}

const sampleSets = `set hosts = { 192.0.2.0/24 }
set services = { tcp/80 }
set endpoints = { 192.0.2.1 tcp/80 }
set leased = dynamic(max 9)
set openings = dynamic(of services, max 9)
set partners = dynamic(of endpoints, max 9)
`

// Each field can be asked for in each of the ways that the table names, and is what the resolver finds then; the term
// is printed as it was written.
func TestEveryFieldIsResolvedAndPrinted(t *testing.T) {
	found := map[field.Field]bool{}
	for i := range field.Phrases {
		ph := &field.Phrases[i]
		all := samples(ph)
		if len(all) == 0 && ph.Form != field.FormPacket {
			t.Errorf("%q: no sample of its form %d", ph.Word, ph.Form)
		}
		for text, want := range all {
			f, ds := syntax.Parse("p.levee", []byte(sampleSets+"drop "+text+"\ndefault pass\n"))
			p, more := Resolve(f, nil)
			if ds = syntax.Merge(ds, more); ds.HasErrors() {
				t.Errorf("%q: %v", text, ds.Err())
				continue
			}
			r := p.Rules[0]
			if r.Text != "drop "+text {
				t.Errorf("%q is printed as %q", text, r.Text)
			}
			if want == field.None { // malformed
				if !r.Malformed {
					t.Errorf("%q: not about malformed frames", text)
				}
				continue
			}
			if len(r.Match) != 1 || r.Match[0].Field != want {
				t.Errorf("%q: %+v, want one term on %s", text, r.Match, want.Info().Name)
				continue
			}
			found[want] = true
			if m := &r.Match[0]; m.Set == nil && m.Mask == 0 && len(m.Ranges)+len(m.Prefixes)+len(m.Services())+len(m.Endpoints()) == 0 {
				t.Errorf("%q: a term that asks for nothing", text)
			}
		}
	}
	for f := field.None + 1; f < field.NumFields; f++ {
		if !found[f] {
			t.Errorf("%s: no rule asks for it", f.Info().Name)
		}
	}
}

// A word of rules is reserved, or was a word of packets first: then it may name a set.
func TestWordsOfRulesMayNotNameSets(t *testing.T) {
	inPackets := map[string]bool{}
	for _, w := range syntax.FieldWords() {
		inPackets[w] = true
	}
	for i := range field.Phrases {
		for _, w := range append(strings.Fields(field.Phrases[i].Word), field.Phrases[i].Words...) {
			src := fmt.Sprintf("set %s = { 192.0.2.0/24 }\ndrop from %[1]s\ndefault pass\n", w)
			f, ds := syntax.Parse("p.levee", []byte(src))
			_, more := Resolve(f, nil)
			if refused := syntax.Merge(ds, more).HasErrors(); refused == inPackets[w] {
				t.Errorf("a set named %q: refused %v", w, refused)
			}
		}
	}
}

// Terms are told to be doubled by what sameValue says: it has to look at all that they ask for.
func TestSameValueLooksAtEveryMember(t *testing.T) {
	other := map[string]any{
		"Mask": uint8(1), "Value": uint8(1), "Set": &Set{}, "Ranges": []Range{{}}, "Prefixes": []netip.Prefix{{}},
		"given": nil, "Field": nil, "Not": nil, "Pos": nil, // given is looked at below; the others are not of the value
	}
	typ := reflect.TypeFor[Term]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		v, ok := other[name]
		if !ok {
			t.Errorf("%s: say here what another value is, or why it is none", name)
		}
		if v == nil {
			continue
		}
		var a, b Term
		reflect.ValueOf(&b).Elem().Field(i).Set(reflect.ValueOf(v))
		if sameValue(&a, &b) {
			t.Errorf("%s: terms that differ in it have the same value", name)
		}
	}
	for _, g := range []given{{services: []Service{{}}}, {endpoints: []Element{{}}}} {
		if sameValue(&Term{}, &Term{given: &g}) {
			t.Errorf("terms that differ in %+v have the same value", g)
		}
	}
}
