package region

import (
	"cmp"
	"context"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Difference is packets that two policies decide otherwise, by one rule each.
type Difference struct {
	A, B    int // slots
	Was, Is Outcome
	Leaves  bool // the packets leave
	Parts   []Part
	// Example is one of the packets, judged by the oracle with both policies; nil if no test can
	// show one.
	Example *Example
}

// Part is some of the packets of a difference, in words.
type Part struct {
	Classes []ir.Class
	Tags    []int    // how many tags of VLANs they have, nil where nothing asks
	Words   string   // what both rules ask of them, "" of all packets of the classes
	Unknown []string // what has to be so besides, which only run time knows
	// Unless counts the rules in front, of both policies, that decide some of these.
	Unless int
	// Hidden lists the properties of some of these packets that no test can give them: by these
	// they come past the rules in front.
	Hidden []string
}

// Compared is the result of Compare.
type Compared struct {
	Differences []Difference // in the order of the second policy's slots, then of the first's
	// Open counts the pairs of rules that were given up: whether they decide a packet otherwise
	// takes more than maxSteps to say.
	Open int
	Cut  bool // it ended before all was compared
}

// maxSteps bounds the search for packets of one pair of rules.
const maxSteps = 1 << 18

// Compare finds the packets that two policies decide otherwise. What rules count and log without
// deciding is not compared. When ctx is done it ends, and says so.
func Compare(ctx context.Context, a, b *policy.Policy) *Compared {
	out := compareSide(ctx, a, b)
	if a.Out == nil && b.Out == nil {
		return out
	}
	more := compareSide(ctx, leaving(a), leaving(b))
	out.Differences = append(out.Differences, more.Differences...)
	out.Open, out.Cut = out.Open+more.Open, out.Cut || more.Cut
	return out
}

// leaving returns what a policy says of what leaves: that all of it passes where it says nothing.
func leaving(p *policy.Policy) *policy.Policy {
	if p.Out == nil {
		all := *p
		all.Out = &policy.Out{Default: policy.Default{Action: action.Pass},
			Rules: []*policy.Rule{{Action: action.Pass, Malformed: true, Out: true,
				ID: "out:default"}}}
		p = &all
	}
	return p.Leaving()
}

// compareSide compares what two policies decide of what arrives, or of what leaves.
func compareSide(ctx context.Context, a, b *policy.Policy) *Compared {
	c := &comparison{policies: [2]*policy.Policy{a, b}, found: map[[2]int]*Difference{}}
	progs := [2]*ir.Program{ir.Build(a), ir.Build(b)}
	c.malformed(progs)
	for _, classes := range together(progs) {
		at := classes[0].Index()
		lists := [2][]ir.Rule{progs[0].Lists[at], progs[1].Lists[at]}
		if !asksTags(lists[0]) && !asksTags(lists[1]) {
			c.class(ctx, newSpace(classes[0], 0, a, b), classes, nil, lists)
			continue
		}
		for tags := range 3 {
			c.class(ctx, newSpace(classes[0], tags, a, b), classes, []int{tags}, lists)
		}
	}
	return c.result()
}

// together groups the classes whose lists are the same memory in both programs.
func together(progs [2]*ir.Program) (out [][]ir.Class) {
	type key struct {
		a, b   *ir.Rule
		family ir.Family
	}
	at := map[key]int{}
	for _, c := range ir.Classes() {
		k := key{&progs[0].Lists[c.Index()][0], &progs[1].Lists[c.Index()][0], c.Family}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k], out = i, append(out, nil)
		}
		out[i] = append(out[i], c)
	}
	return out
}

func asksTags(rules []ir.Rule) bool {
	return slices.ContainsFunc(rules, func(r ir.Rule) bool {
		return slices.ContainsFunc(r.Conds, func(c ir.Cond) bool { return tagged(c.Field) })
	})
}

// comparison is one that is made.
type comparison struct {
	policies [2]*policy.Policy
	judges   [2]*oracle.Evaluator
	found    map[[2]int]*Difference
	open     int
	cut      bool
}

// malformedWords are the words for a difference of malformed frames.
const malformedWords = "malformed frames"

// malformed compares what becomes of frames that cannot be decoded: one kind stands for all, as
// rules cannot tell them apart.
func (c *comparison) malformed(progs [2]*ir.Program) {
	var slots [2]int
	var drops [2]bool
	for i, p := range progs {
		slots[i], drops[i] = p.DropsMalformed(0)
	}
	if drops[0] == drops[1] {
		return
	}
	is := map[bool]Outcome{true: Drop, false: Pass}
	c.found[slots] = &Difference{A: slots[0], B: slots[1], Was: is[drops[0]], Is: is[drops[1]],
		Parts: []Part{{Words: malformedWords}}}
}

// class compares the packets of classes that are asked the same.
func (c *comparison) class(ctx context.Context, s *space, classes []ir.Class, tags []int,
	lists [2][]ir.Rule) {
	var sides [2]*ordered
	for i := range lists {
		sides[i] = order(s, s.lower(c.policies[i], lists[i]))
	}
	s.close()
	for i, o := range sides {
		o.known(sides[1-i])
	}
	a, b := sides[0], sides[1]
	s.bounded(a, b)
	a.odd, b.odd = oddOnes(a, b)
	for i := range a.rules {
		if ctx.Err() != nil {
			c.cut = true
			return
		}
		for k := range b.rules {
			if a.odd[i] || b.odd[k] { // two of one order decide nothing otherwise
				c.pair(s, Part{Classes: classes, Tags: tags}, a, b, i, k)
			}
		}
	}
}

// pair notes a difference if rule i of one policy and rule k of the other decide a packet, each in
// its policy.
func (c *comparison) pair(s *space, of Part, a, b *ordered, i, k int) {
	x, y := a.rules[i], b.rules[k]
	if x.outcome == y.outcome || a.twin[i] < k || b.twin[k] < i || !a.hulls[i].meets(&b.hulls[k]) {
		return
	}
	where, ok := s.within(nil, x.wants)
	if ok {
		where, ok = s.within(where, y.wants)
	}
	if !ok {
		return
	}
	unions := slices.Concat(x.unions, y.unions)
	earlier, covered := s.meeting(where, a.before(s, i))
	if covered {
		return
	}
	more, covered := s.meeting(where, b.before(s, k))
	if covered {
		return
	}
	for _, r := range more {
		if t := a.at(r.key); t < 0 || t >= i { // else it is among the others already
			earlier = append(earlier, r)
		}
	}
	look := &search{s, maxSteps}
	found, ok := look.find(where, unions, slices.Concat(s.impossible, earlier))
	if !ok {
		if look.left < 0 {
			c.open++
		}
		return
	}
	key := [2]int{x.slot, y.slot}
	d := c.found[key]
	if d == nil {
		d = &Difference{A: x.slot, B: y.slot, Was: x.outcome, Is: y.outcome}
		c.found[key] = d
	}
	of.Words, of.Unknown = s.words(where, unions)
	shown := found
	if len(s.unsaid) > 0 {
		say := &search{s, maxSteps}
		none := slices.Concat(s.impossible, earlier, s.unsaid)
		if shown, ok = say.find(where, unions, none); !ok {
			of.Hidden = s.hidden(where, found)
		}
	}
	if d.Example == nil && ok {
		d.Example = c.example(s, shown, of.Classes, d)
	}
	if known, asked := s.index[sideKey{about: ofNumber, field: field.Flow}]; asked && ok &&
		d.Example == nil {
		look := &beginning{c, s, d, known, where, unions,
			slices.Concat(s.impossible, earlier, s.unsaid)}
		began := false
		if d.Example, began = look.example(of.Classes); !began {
			of.Hidden = []string{otherRules}
		}
	}
	of.Unless = len(earlier)
	d.add(of)
}

// add adds packets to a difference, to those of which the same is said if there are any.
func (d *Difference) add(more Part) {
	for i := range d.Parts {
		p := &d.Parts[i]
		if p.Words != more.Words || !slices.Equal(p.Unknown, more.Unknown) ||
			!slices.Equal(p.Hidden, more.Hidden) {
			continue
		}
		switch {
		case slices.Equal(p.Classes, more.Classes):
			p.Tags = append(slices.Clip(p.Tags), more.Tags...)
		case slices.Equal(p.Tags, more.Tags):
			p.Classes = append(slices.Clip(p.Classes), more.Classes...)
		default:
			continue
		}
		p.Unless = max(p.Unless, more.Unless)
		return
	}
	d.Parts = append(d.Parts, more)
}

// meeting returns the rules that match some of a box; true if one matches all of it.
func (s *space) meeting(b box, rules []*rule) (some []*rule, covered bool) {
	for _, r := range rules {
		switch rel, _ := s.relateRule(b, r); rel {
		case all:
			return nil, true
		case none:
		default:
			some = append(some, r)
		}
	}
	return some, false
}

// ordered are the rules of one policy in a space, in their order.
type ordered struct {
	rules   []*rule
	hulls   []hull
	places  map[string]int // of the first of each key
	twin    []int          // the place of the same rule in the other policy, or far
	odd     []bool         // has no twin, or one in another order
	earlier map[int][]*rule
}

// far is behind all rules.
const far = 1 << 30

func order(s *space, rules []*rule) *ordered {
	o := &ordered{rules: rules, places: map[string]int{}, earlier: map[int][]*rule{}}
	for i, r := range rules {
		if _, ok := o.places[r.key]; !ok {
			o.places[r.key] = i
		}
		o.hulls = append(o.hulls, s.hull(r))
	}
	return o
}

// at returns the place of a rule with a key, or -1.
func (o *ordered) at(key string) int {
	if i, ok := o.places[key]; ok {
		return i
	}
	return -1
}

// known notes where the rules are in the other policy.
func (o *ordered) known(other *ordered) {
	o.twin = make([]int, len(o.rules))
	for i, r := range o.rules {
		if o.twin[i] = other.at(r.key); o.twin[i] < 0 {
			o.twin[i] = far
		}
	}
}

// before returns the rules in front of one that match some of what it matches.
func (o *ordered) before(s *space, i int) []*rule {
	if known, ok := o.earlier[i]; ok {
		return known
	}
	var out []*rule
	for k := range i {
		if o.hulls[k].meets(&o.hulls[i]) {
			out = append(out, o.rules[k])
		}
	}
	o.earlier[i] = out
	return out
}

// oddOnes marks the rules that are not in the longest list of twins that have the same order in
// both policies.
func oddOnes(a, b *ordered) (oddA, oddB []bool) {
	oddA, oddB = make([]bool, len(a.rules)), make([]bool, len(b.rules))
	for i := range oddA {
		oddA[i] = true
	}
	for i := range oddB {
		oddB[i] = true
	}
	var ends []int // by length: the rule of a that ends a list, with the least place in b
	back := make([]int, len(a.rules))
	for i := range a.rules {
		if a.twin[i] == far || b.twin[a.twin[i]] != i {
			continue
		}
		n, _ := slices.BinarySearchFunc(ends, a.twin[i],
			func(end, place int) int { return cmp.Compare(a.twin[end], place) })
		back[i] = -1
		if n > 0 {
			back[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	if len(ends) == 0 {
		return oddA, oddB
	}
	for i := ends[len(ends)-1]; i >= 0; i = back[i] {
		oddA[i], oddB[a.twin[i]] = false, false
	}
	return oddA, oddB
}

// bounded notes that no packet is above the wider of two limits and not above the narrower one, if
// the same packets come to both: rules in front of them are the same, and they ask the same.
func (s *space) bounded(a, b *ordered) {
	for i, x := range a.rules {
		if i == len(b.rules) {
			return
		}
		y := b.rules[i]
		if x.key == y.key {
			continue
		}
		if x.limit != nil && y.limit != nil && x.unlimited() == y.unlimited() {
			narrow, wide := x, y
			if !within(x.limit, y.limit) {
				narrow, wide = y, x
			}
			if within(narrow.limit, wide.limit) {
				s.impossible = append(s.impossible, &rule{wants: []want{
					{wide.above, single(1)}, {narrow.above, single(0)}}})
			}
		}
		return // behind it other packets come to the rules
	}
}

// within says whether of the same packets another limit lets through what one does.
func within(narrow, wide *policy.Limit) bool {
	n, w := &narrow.Rate, &wide.Rate
	return narrow.Rates == nil && wide.Rates == nil && narrow.ByKeys() == wide.ByKeys() &&
		narrow.Times() == wide.Times() && n.Bits == w.Bits && narrow.Burst <= wide.Burst &&
		float64(n.Amount)*float64(w.Per) <= float64(w.Amount)*float64(n.Per)
}

// unlimited returns what tells rules apart whatever their limits have.
func (r *rule) unlimited() string {
	n := *r
	n.wants = slices.DeleteFunc(slices.Clone(r.wants),
		func(w want) bool { return w.side == r.above })
	return n.text()
}

// hull is the least interval around the values of the sides in most rules.
type hull [hullSides]field.Range

const hullSides = 5

// hullOf gives the place of a side in a hull, or -1.
func hullOf(s *side) int {
	switch {
	case s.about == ofSource:
		return 0
	case s.about == ofDestination:
		return 1
	case s.about == ofNumber && (s.field == field.DstPort || s.field == field.ICMPType ||
		s.field == field.ICMP6Type):
		return 2
	case s.about == ofNumber && s.field == field.Proto:
		return 3
	case s.about == ofNumber && s.field == field.SrcPort:
		return 4
	}
	return -1
}

func (s *space) hull(r *rule) (h hull) {
	for i := range h {
		h[i].Hi = 1<<64 - 1
	}
	for _, w := range r.wants {
		if i := hullOf(&s.sides[w.side]); i >= 0 {
			h[i].Lo = max(h[i].Lo, w.values[0].Lo)
			h[i].Hi = min(h[i].Hi, w.values[len(w.values)-1].Hi)
		}
	}
	return h
}

func (h *hull) meets(o *hull) bool {
	for i := range h {
		if h[i].Lo > o[i].Hi || o[i].Lo > h[i].Hi {
			return false
		}
	}
	return true
}

// result returns what was found, in order.
func (c *comparison) result() *Compared {
	out := &Compared{Open: c.open, Cut: c.cut}
	for _, d := range c.found {
		d.Leaves = c.policies[0].Leaves()
		out.Differences = append(out.Differences, *d)
	}
	slices.SortFunc(out.Differences, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.B, b.B), cmp.Compare(a.A, b.A))
	})
	return out
}
