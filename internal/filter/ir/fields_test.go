package ir

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// strangers are fields with an empty row: one that has no row, and one that has an empty one.
var strangers = []field.Field{field.None, field.NumFields}

// A rule goes only where an earlier one covers it. That of a field that nobody has described stays,
// whatever it looks like.
func TestFieldThatNothingIsKnownOfRemovesNoRule(t *testing.T) {
	shapes := map[string]Cond{
		"nothing":  {},
		"ranges":   {Ranges: one(5)},
		"bits":     {Mask: 3, Value: 1},
		"prefixes": {Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
		"a set":    {Set: &policy.Set{Kind: policy.Dynamic}},
		"pairs": {Number: field.DstPort,
			Pairs: []Pair{{netip.MustParsePrefix("0.0.0.0/0"), one(5)[0]}}},
	}
	for _, f := range strangers {
		for name, q := range shapes {
			q.Field = f
			asks := []Cond{q}
			rules := []Rule{{Action: actions[action.Drop], Conds: asks},
				{Slot: 1, Action: actions[action.Drop], Conds: slices.Clone(asks)}}
			p := &policy.Policy{}
			if kept := uncovered(rules, newReach(p)); len(kept) != 2 {
				t.Errorf("field %d with %s: %d of two rules are left", f, name, len(kept))
			}
			steps := 0
			if implies(&q, &q, &steps) {
				t.Errorf("field %d with %s: implies itself", f, name)
			}
			if joined, possible := narrow(slices.Clone(asks), &q); len(joined) != 2 || !possible {
				t.Errorf("field %d with %s: two questions became %d", f, name, len(joined))
			}
		}
	}
}

// Nothing is said of what a rule drops that asks for such a field.
func TestRuleThatNothingIsKnownOfIsNotBlamed(t *testing.T) {
	for _, f := range strangers {
		if conds, sure := certain(&Rule{Action: actions[action.Drop],
			Conds: []Cond{{Field: f, Ranges: one(1)}}}); conds != nil || sure {
			t.Errorf("field %d: %v are certain", f, conds)
		}
	}
}

// A rule that asks for such a field drops some of the packets, and passes none for certain.
func TestRuleThatNothingIsKnownOfMayDrop(t *testing.T) {
	tcp := Class{IPv4, TCP, false}
	traffic := &Traffic{Class: tcp, Src: netip.MustParseAddr("192.0.2.7"),
		Dst: netip.MustParseAddr("198.51.100.1")}
	for _, f := range append(strangers, field.Payload, field.Contents, field.Stream,
		field.Inner) {
		asks := []Cond{{Field: f}}
		for name, c := range map[string]struct {
			first *Action
			slot  int
		}{
			"drops": {actions[action.Drop], 0}, "passes": {actions[action.Pass], 1},
		} {
			prog := &Program{}
			prog.Lists[tcp.Index()] = []Rule{{Action: c.first, Conds: asks},
				{Slot: 1, Action: actions[action.Drop]}}
			if d := prog.FirstDropped(traffic); d == nil || d.Slot != c.slot {
				t.Errorf("field %d, the first rule %s: %+v, want slot %d", f, name, d, c.slot)
			}
		}
	}
}

// What stands in front of a question that nothing is known of may be there to make it safe.
func TestQuestionThatNothingIsKnownOfKeepsItsPlace(t *testing.T) {
	for _, f := range strangers {
		conds := []Cond{
			{Field: field.Len, Ranges: []field.Range{{Lo: 1, Hi: 2}, {Lo: 5, Hi: 6}}},
			{Field: f},
			{Field: field.TTL, Ranges: one(1)},
		}
		order(conds)
		if conds[0].Field != field.Len || conds[1].Field != f {
			t.Errorf("field %d: asked in another order", f)
		}
	}
}

// drawn is a packet's value in the fields of one question.
type drawn struct {
	number uint64
	addr   netip.Addr
}

func (q *Cond) holdsFor(d drawn) bool {
	in := contains(q.Ranges, d.number)
	switch {
	case q.Pairs != nil:
		in = slices.ContainsFunc(q.Pairs, func(p Pair) bool {
			return p.Prefix.Contains(d.addr) && contains([]field.Range{p.Range}, d.number)
		})
	case q.Prefixes != nil:
		in = slices.ContainsFunc(q.Prefixes,
			func(p netip.Prefix) bool { return p.Contains(d.addr) })
	case q.Field.Info().Compare == field.ByMask:
		in = uint8(d.number)&q.Mask == q.Value
	}
	return in != q.Not
}

func drawRanges(r *rand.Rand) (out []field.Range) {
	for v := r.Uint64N(12); v < 64 && len(out) < 3; v += 2 + r.Uint64N(20) {
		n := r.Uint64N(12)
		out = append(out, field.Range{Lo: v, Hi: min(v+n, 63)})
		v += n
	}
	return out
}

func drawPrefix(r *rand.Rand) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(64))}),
		26+r.IntN(7)).Masked()
}

// drawQuestion makes a question on a field in one of the forms that lowering gives it.
func drawQuestion(r *rand.Rand, f field.Field) Cond {
	q := Cond{Field: f, List: ListID(1 + r.Uint32N(1<<31))}
	switch f.Info().Compare {
	case field.ByRange:
		q.Ranges, q.List = drawRanges(r), 0
	case field.ByMask:
		q.Mask, q.Not = uint8(r.IntN(64)), r.IntN(2) == 0
		q.Value = q.Mask & uint8(r.IntN(64))
	case field.ByPrefix:
		q.Not = r.IntN(2) == 0
		for range 1 + r.IntN(3) {
			q.Prefixes = append(q.Prefixes, drawPrefix(r))
		}
		q.Prefixes = literal.MergePrefixes(q.Prefixes)
	case field.ByPair:
		q.Not, q.Number = r.IntN(2) == 0, f.Info().Port
		for range 1 + r.IntN(3) {
			q.Pairs = append(q.Pairs, Pair{drawPrefix(r), drawRanges(r)[0]})
		}
	}
	return q
}

// What the table allows to conclude from questions is compared with trying all values. A field that
// it allows something of, in a way of comparing that is not drawn above, fails for want of a
// conclusion.
func TestLawsOfEveryField(t *testing.T) {
	for f := field.None + 1; f < field.NumFields; f++ {
		laws := f.Laws()
		if laws == (field.Laws{}) && f.Info().Compare != field.ByBytes &&
			f.Info().Compare != field.ByPattern && f.Info().Compare != field.ByInner &&
			f.Info().Compare != field.ByName && f.Info().Compare != field.ByMessage {
			t.Errorf("%s: nothing may be done with questions for it", f.Info().Name)
		}
		r := rand.New(rand.NewPCG(uint64(f), 1))
		covers, joins := 0, 0
		for range 1000 {
			a, b := drawQuestion(r, f), drawQuestion(r, f)
			if r.IntN(4) == 0 { // or hardly any would imply another
				b = a
			}
			steps := 0
			implied := implies(&b, &a, &steps)
			joined, possible := narrow([]Cond{a}, &b)
			if len(joined) == 2 && a.excludes() && b.excludes() {
				all := newAcross(nil, newWork(&policy.Policy{}))
				joined, possible = all.joinExcluded(joined)
			}
			for number := range uint64(64) {
				for last := range byte(64) {
					d := drawn{number, netip.AddrFrom4([4]byte{192, 0, 2, last})}
					both := a.holdsFor(d) && b.holdsFor(d)
					if implied && b.holdsFor(d) && !a.holdsFor(d) {
						t.Fatalf("%s: %v should imply %v, not for %v", f.Info().Name, b, a, d)
					}
					if !possible && both {
						t.Fatalf("%s: %v and %v both hold for %v", f.Info().Name, a, b, d)
					}
					if possible && len(joined) == 1 && joined[0].holdsFor(d) != both {
						t.Fatalf("%s: %v and %v became %v, which differs for %v", f.Info().Name, a,
							b, joined[0], d)
					}
					if f.Info().Compare != field.ByPrefix && f.Info().Compare != field.ByPair {
						break
					}
				}
			}
			if implied {
				covers++
			}
			if len(joined) < 2 {
				joins++
			}
		}
		if laws.Cover != (covers > 0) {
			t.Errorf("%s: covering is allowed: %v; found %d times", f.Info().Name, laws.Cover,
				covers)
		}
		if laws.Join != (joins > 0) {
			t.Errorf("%s: joining is allowed: %v; done %d times", f.Info().Name, laws.Join, joins)
		}
	}
}

// Chains are shared, and rules told to be the same, by what sameConds says: it has to look at every
// member.
func TestSameConditionsLooksAtEveryMember(t *testing.T) {
	base := Cond{
		Field: field.DstEndpoint, Number: field.DstPort, Proto: 6, Mask: 1, Value: 1,
		Set:    &policy.Set{},
		Ranges: one(3), Prefixes: []netip.Prefix{{}}, Pairs: []Pair{{}}, List: 1,
	}
	other := map[string]any{
		"Field": field.SrcEndpoint, "Not": true, "Number": field.SrcPort, "Proto": uint8(17),
		"Mask":  uint8(3),
		"Value": uint8(0), "Set": &policy.Set{}, "Ranges": one(4), "List": ListID(2),
		"Bytes":    &policy.Bytes{At: 1},
		"Inner":    &policy.Inner{},
		"Pattern":  &policy.Pattern{},
		"Unknown":  true,
		"Names":    &policy.NameList{},
		"Prefixes": nil, "Pairs": nil, // of which List is the number
	}
	if !sameConds([]Cond{base}, []Cond{base}) {
		t.Fatal("a condition is not the same as itself")
	}
	typ := reflect.TypeFor[Cond]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		v, ok := other[name]
		if !ok {
			t.Errorf("%s: say here what another value is", name)
		}
		if v == nil {
			continue
		}
		changed := base
		reflect.ValueOf(&changed).Elem().Field(i).Set(reflect.ValueOf(v))
		if sameConds([]Cond{base}, []Cond{changed}) {
			t.Errorf("%s: conditions that differ in it are told to be the same", name)
		}
	}
}

// Each class has the fields that the table gives its packets, and each value of a field is in some
// class.
func TestClassesHaveWhatTheTableSays(t *testing.T) {
	for f := field.None + 1; f < field.NumFields; f++ {
		info := f.Info()
		if info.Compare != field.ByRange {
			continue
		}
		var all []field.Range
		for _, c := range Classes() {
			dom := domain(f, c)
			if (dom != nil) != c.has(info.Header) {
				t.Errorf("%s in %v: values %v", info.Name, c, dom)
			}
			all = append(all, dom...)
		}
		if len(all) == 0 {
			t.Errorf("%s: no class has it", info.Name)
			continue
		}
		all = field.Join(all)
		var want []field.Range
		p := info.Header.Presence()
		for _, v := range []struct {
			has    bool
			values []field.Range
		}{{p.NotIP, info.Values.Other}, {p.IPv4, info.Values.IPv4}, {p.IPv6, info.Values.IPv6}} {
			if v.has {
				want = append(want, v.values...)
			}
		}
		if want = field.Join(want); !sameRanges(all, want) {
			t.Errorf("%s: the classes together have %v, packets %v", info.Name, all, want)
		}
		if info.Absent != 0 && contains(all, info.Absent) {
			t.Errorf("%s: %d says that there is none, and is a value", info.Name, info.Absent)
		}
	}
}

// A field by which classes are told apart has other values in each; all others have the same
// wherever they are.
func TestOnlyFieldsByClassDifferWithinAFamily(t *testing.T) {
	for f := field.None + 1; f < field.NumFields; f++ {
		if f.Info().Compare != field.ByRange {
			continue
		}
		differs := false
		for _, family := range []Family{NonIP, IPv4, IPv6} {
			var first []field.Range
			for _, c := range Classes() {
				dom := domain(f, c)
				if c.Family != family || dom == nil {
					continue
				}
				if first == nil {
					first = dom
				}
				differs = differs || !sameRanges(first, dom)
			}
		}
		if differs != f.Info().ByClass {
			t.Errorf("%s: values differ by class: %v, the table says %v", f.Info().Name, differs,
				f.Info().ByClass)
		}
	}
}

// What the table says is told by the class, and is not told here, is any value, so that no rule
// goes.
func TestFieldByClassThatNoClassTellsHasAllValues(t *testing.T) {
	for _, c := range Classes() {
		if got := byClass(field.TTL, c); !sameRanges(got, span(0, 1<<64-1)) {
			t.Errorf("%v: TTL %v", c, got)
		}
	}
}

func TestEveryFieldIsPrinted(t *testing.T) {
	for f := field.None + 1; f < field.NumFields; f++ {
		if words[f] == "" {
			t.Errorf("%s: no words", f.Info().Name)
		}
	}
}
