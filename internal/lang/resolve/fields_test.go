package resolve

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/field/fieldtest"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
)

// Each field can be asked for in each of the ways that the table names, and is what the resolver
// finds then; the term is printed as it was written.
func TestEveryFieldIsResolvedAndPrinted(t *testing.T) {
	found := map[field.Field]bool{}
	for _, sample := range fieldtest.Samples() {
		text, want := sample.Text, sample.Field
		rule := sample.Side() + "drop " + text
		f, ds := syntax.Parse("p.levee", []byte(fieldtest.Sets+rule+"\ndefault pass\n"))
		p, more := Resolve(f, nil)
		if ds = diag.Merge(ds, more); ds.HasErrors() {
			t.Errorf("%q: %v", text, ds.Err())
			continue
		}
		if out := p.Leaving(); out != nil {
			p = out
		}
		r := p.Rules[0]
		if r.Text != rule {
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
		if m := &r.Match[0]; m.Set == nil && m.Mask == 0 && m.Bytes == nil && m.Pattern == nil &&
			m.Inner == nil && m.Names == nil &&
			len(m.Ranges)+len(m.Prefixes)+len(m.Services())+len(m.Endpoints()) == 0 {
			t.Errorf("%q: a term that asks for nothing", text)
		}
	}
	for f := field.None + 1; f < field.NumFields; f++ {
		if !found[f] {
			t.Errorf("%s: no rule asks for it", f.Info().Name)
		}
	}
}

// A word of rules is reserved, or was a word of packets first: then it may name a set. So may the
// words about who sends, which came when policies had sets of these names.
func TestWordsOfRulesMayNotNameSets(t *testing.T) {
	inPackets := map[string]bool{}
	for _, w := range strings.Fields(ast.FieldWords) {
		inPackets[w] = true
	}
	for i := range field.Phrases {
		if strings.HasPrefix(field.Phrases[i].Word, "dns ") { // words only behind dns
			continue
		}
		words := strings.Fields(field.Phrases[i].Word)
		if field.Phrases[i].Form == field.FormAlone {
			words = words[:1] // a second word has no value that a set could be
		}
		for _, w := range append(words, field.Phrases[i].Words...) {
			src := fmt.Sprintf("set %s = { 192.0.2.0/24 }\ndrop from %[1]s\ndefault pass\n", w)
			f, ds := syntax.Parse("p.levee", []byte(src))
			_, more := Resolve(f, nil)
			free := inPackets[w] || field.Phrases[i].Field.Info().Kernel == field.Leaving
			if refused := diag.Merge(ds, more).HasErrors(); refused == free {
				t.Errorf("a set named %q: refused %v", w, refused)
			}
		}
	}
}

// Terms are told to be doubled by what sameValue says: it has to compare all their values.
func TestSameValueLooksAtEveryMember(t *testing.T) {
	other := map[string]any{
		"Mask": uint8(1), "Value": uint8(1), "Set": &policy.Set{}, "Ranges": []field.Range{{}},
		"Prefixes": []netip.Prefix{{}}, "Bytes": &policy.Bytes{At: 1}, "Pattern": &policy.Pattern{},
		"Unknown": true, "Inner": &policy.Inner{}, "Names": &policy.NameList{},
		// Given is looked at below; Senders stand for Ranges; the others are not of the value
		"Given": nil, "Senders": nil, "Field": nil, "Not": nil, "Pos": nil,
	}
	typ := reflect.TypeFor[policy.Term]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		v, ok := other[name]
		if !ok {
			t.Errorf("%s: say here what another value is, or why it is none", name)
		}
		if v == nil {
			continue
		}
		var a, b policy.Term
		reflect.ValueOf(&b).Elem().Field(i).Set(reflect.ValueOf(v))
		if sameValue(&a, &b) {
			t.Errorf("%s: terms that differ in it have the same value", name)
		}
	}
	for _, g := range []policy.Given{{Services: []policy.Service{{}}},
		{Endpoints: []policy.Element{{}}}} {
		if sameValue(&policy.Term{}, &policy.Term{Given: &g}) {
			t.Errorf("terms that differ in %+v have the same value", g)
		}
	}
}
