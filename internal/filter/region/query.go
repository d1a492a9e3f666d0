package region

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/filter/ir"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
)

// question returns what messages call a question, counts the action that it gets to be a rule.
const question, counts = "the question", "count "

// Question is a match that is asked of a policy.
type Question struct {
	Policy *policy.Policy // with a rule of the match in front, which only counts
	slot   int
}

// Ask reads a match, in the words of rules, behind "out" for packets that leave, and the policy
// that it is asked of, whose sets it may name. open opens the policy's set files. Without a
// question, the diagnostics say why.
func Ask(name string, text []byte, match string, open func(string) (io.ReadCloser, error)) (
	*Question, diag.Diagnostics) {
	rule := counts + match
	if rest, leaves := strings.CutPrefix(match, "out "); leaves {
		rule = "out " + counts + rest
	}
	asked, ds := syntax.Parse(question, []byte(rule))
	if ds.HasErrors() {
		return nil, asAsked(ds, question, 1)
	}
	if len(asked.Stmts) != 1 {
		c := &diag.Collector{File: question}
		c.Errorf(diag.Pos{}, "a question is one match, as tcp port 22.", "%q is no match", match)
		return nil, c.Diagnostics(match)
	}
	tree, ds := syntax.Parse(name, slices.Concat(text, []byte("\n"+rule+"\n")))
	if ds.HasErrors() {
		return nil, ds
	}
	last := len(tree.Stmts) - 1
	tree.Stmts = append(tree.Stmts[last:], tree.Stmts[:last]...)
	p, ds := resolve.Question(tree, open)
	if ds.HasErrors() || p == nil {
		return nil, asAsked(ds, name, tree.Stmts[0].Place().Line)
	}
	if rule != counts+match {
		p = p.Leaving()
	}
	return &Question{p, p.RuleSlot(0)}, nil
}

// Among has the question asked of the policy that of makes of the one in the text, such as the one
// with the live rules in it.
func (q *Question) Among(of func(*policy.Policy) (*policy.Policy, error)) error {
	bare := *q.Policy
	bare.Rules = bare.Rules[1:]
	p, err := of(&bare)
	if err != nil {
		return err
	}
	p.Rules = slices.Insert(slices.Clone(p.Rules), 0, q.Policy.Rules[0])
	q.Policy = p
	return nil
}

// asAsked has what is said of a line be said of the question, which has no action.
func asAsked(ds diag.Diagnostics, file string, line int32) diag.Diagnostics {
	for i := range ds {
		d := &ds[i]
		if d.File != file || d.Line != line {
			continue
		}
		d.File, d.Line, d.Source = question, 1, strings.Replace(d.Source, counts, "", 1)
		d.Col, d.EndCol = max(1, d.Col-int32(len(counts))), max(1, d.EndCol-int32(len(counts)))
		d.SourceSkip = max(0, d.SourceSkip-len(counts))
	}
	return ds
}

// Way is packets of a question that one rule decides.
type Way struct {
	Slot    int
	Outcome Outcome
	From    []Sources
}

// Sources are the senders of some of these packets.
type Sources struct {
	Classes  []ir.Class
	Tags     []int
	All      bool           // any source, also of packets that have none
	Prefixes []netip.Prefix // else; of IPv6 up to 64 bits, beyond that Words say it
	Words    string         // what else is asked of the packets, beside the question
	Unknown  []string       // what has to be so, which only run time knows
}

// Answers are the packets that reach the target of a question.
type Answers struct {
	Ways []Way // in the order of the rules
	// Open is set if there are too many kinds of packets: of some it is not said what becomes of
	// them.
	Open bool
}

// maxBoxes bounds the packets of one class that no rule has decided yet, in boxes.
const maxBoxes = 1 << 11

// manyBoxes is from how many on they are looked through for some that are one.
const manyBoxes = 64

// Who answers a question. What counts and logs without deciding is no part of it.
func (q *Question) Who() *Answers {
	w := &walk{Question: q, found: map[int]*Way{}}
	w.decides = w.note
	w.all()
	out := &Answers{Open: w.open}
	for _, way := range w.found {
		out.Ways = append(out.Ways, *way)
	}
	slices.SortFunc(out.Ways, func(a, b Way) int { return cmp.Compare(a.Slot, b.Slot) })
	return out
}

// walk is a question that goes down the rules.
type walk struct {
	*Question
	// decides is told which packets of the question a rule decides, in boxes.
	decides func(s *space, r *rule, asked *rule, of Sources, boxes []box)
	found   map[int]*Way
	open    bool
}

// all goes through the packets of all classes.
func (w *walk) all() {
	prog := ir.Build(w.Policy, ir.PassCovered)
	for _, classes := range together([2]*ir.Program{prog, prog}) {
		rules := prog.Lists[classes[0].Index()]
		if !asksTags(rules) {
			w.class(newSpace(classes[0], 0, w.Policy), classes, nil, rules)
			continue
		}
		for tags := range 3 {
			w.class(newSpace(classes[0], tags, w.Policy), classes, []int{tags}, rules)
		}
	}
}

// class follows the packets of classes that are asked the same.
func (w *walk) class(s *space, classes []ir.Class, tags []int, rules []ir.Rule) {
	var asked *rule
	for i := range rules {
		if rules[i].Slot == w.slot {
			asked, s.asks = &rule{}, &w.Policy.Senders
			if !s.ask(asked, w.Policy.Rules[0].Text, rules[i].Conds) {
				return
			}
		}
	}
	if asked == nil {
		return
	}
	list := s.lower(w.Policy, rules)
	s.close()
	open, _ := s.carve(make(box, len(s.sides)), asked, nil, nil)
	for _, r := range s.senderless {
		open = s.unlike(open, r)
	}
	for _, r := range s.byForm { // else the words of the answer hold all the same, and are shorter
		if slices.ContainsFunc(r.wants, func(n want) bool { return asked.wantsSide(n.side) }) {
			open = s.unlike(open, r)
		}
	}
	for _, r := range list {
		var in, out []box
		for _, b := range open {
			in, out = s.carve(b, r, in, out)
		}
		if in = slices.DeleteFunc(in, s.isNone); len(in) > 0 {
			w.decides(s, r, asked, Sources{Classes: classes, Tags: tags}, in)
		}
		if open = out; len(open) > manyBoxes {
			open = s.merged(open)
		}
		if len(open) > maxBoxes {
			w.open = true
			return
		}
	}
}

// unlike are boxes without the packets of a rule.
func (s *space) unlike(boxes []box, r *rule) (out []box) {
	for _, b := range boxes {
		_, out = s.carve(b, r, nil, out)
	}
	return out
}

// isNone reports whether no packet can be in a box. The words of other boxes may include impossible
// packets, which makes them shorter.
func (s *space) isNone(b box) bool {
	left := []box{b}
	for _, r := range s.impossible {
		if left = s.unlike(left, r); len(left) > manyBoxes {
			return false
		}
	}
	return len(left) == 0
}

// wantsSide says whether a rule asks for a side.
func (r *rule) wantsSide(side int) bool {
	return slices.ContainsFunc(r.wants, func(n want) bool { return n.side == side })
}

// note adds boxes to what a rule decides. Those that differ in their sources only are one.
func (w *walk) note(s *space, r *rule, asked *rule, of Sources, boxes []box) {
	way := w.found[r.slot]
	if way == nil {
		way = &Way{Slot: r.slot, Outcome: r.outcome}
		w.found[r.slot] = way
	}
	source, has := s.index[sideKey{about: ofSource}]
	sources := map[string][]field.Range{}
	first := map[string]box{}
	var keys []string
	for _, b := range s.merged(boxes) {
		rest := s.withoutAsked(b, asked)
		values := []field.Range(nil)
		if has {
			values = s.values(b, source)
			rest[source] = nil
		}
		key := string(rest.text())
		if first[key] == nil {
			keys, first[key] = append(keys, key), rest
		}
		sources[key] = append(sources[key], values...)
	}
	for _, key := range keys {
		from, rest := of, first[key]
		values := field.Join(slices.Clone(sources[key]))
		if from.All = !has || relate(s.sides[source].domain, values) == all; !from.All {
			from.Prefixes = s.prefixes(values)
		}
		low, six := s.index[sideKey{about: ofSourceLow}]
		if six && rest[low] != nil && len(values) == 1 && values[0].Lo == values[0].Hi {
			from.Prefixes = prefixesWithin(values[0].Lo, rest[low])
			rest[low] = nil
		}
		from.Words, from.Unknown = s.words(rest, nil)
		way.add(from)
	}
}

// withoutAsked returns a box without the sides that hold all values of the question.
func (s *space) withoutAsked(b box, asked *rule) box {
	out := slices.Clone(b)
	for _, w := range asked.wants {
		if s.sides[w.side].about != ofSourceLow && slices.Equal(s.values(b, w.side), w.values) {
			out[w.side] = nil
		}
	}
	return out
}

// merged returns the packets of disjoint boxes in fewer boxes: those that differ in one side are
// one.
func (s *space) merged(boxes []box) []box {
	for side := range s.sides {
		at := map[string]int{}
		var out []box
		for _, b := range boxes {
			rest := slices.Clone(b)
			rest[side] = nil
			key := string(rest.text())
			if i, ok := at[key]; ok {
				out[i][side] = field.Join(slices.Concat(s.values(out[i], side), s.values(b, side)))
				continue
			}
			at[key] = len(out)
			out = append(out, slices.Clone(b))
		}
		boxes = out
	}
	for _, b := range boxes {
		for side := range b {
			if b[side] != nil && slices.Equal(b[side], s.sides[side].domain) {
				b[side] = nil
			}
		}
	}
	return boxes
}

// text tells boxes apart.
func (b box) text() (out []byte) {
	for side, values := range b {
		if values != nil {
			out = appendWants(out, []want{{side, values}})
		}
	}
	return out
}

// add adds sources to a way, to those of which the same is said if there are any.
func (w *Way) add(more Sources) {
	for i := range w.From {
		f := &w.From[i]
		if f.Words != more.Words || f.All != more.All || !slices.Equal(f.Unknown, more.Unknown) ||
			!slices.Equal(f.Prefixes, more.Prefixes) {
			continue
		}
		switch {
		case slices.Equal(f.Classes, more.Classes):
			f.Tags = append(slices.Clip(f.Tags), more.Tags...)
			return
		case slices.Equal(f.Tags, more.Tags):
			f.Classes = append(slices.Clip(f.Classes), more.Classes...)
			return
		}
	}
	w.From = append(w.From, more)
}

// ToldWay is a Way as JSON has it.
type ToldWay struct {
	Verdict string        `json:"verdict"`
	By      ToldRule      `json:"by"`
	From    []ToldSources `json:"from"`
}

// ToldSources are Sources as JSON has them.
type ToldSources struct {
	Kind     string   `json:"kind"`
	All      bool     `json:"all"`      // any source
	Prefixes []string `json:"prefixes"` // else: prefixes, and addresses alone
	Match    string   `json:"match,omitempty"`
	Depends  []string `json:"depends,omitempty"`
}

// ToldAnswer is Answers as JSON has it.
type ToldAnswer struct {
	Ways []ToldWay `json:"ways"`
	Open bool      `json:"open"` // there are more kinds of packets than could be followed
}

// Tell puts answers in words.
func (q *Question) Tell(a *Answers) ToldAnswer {
	out := ToldAnswer{Ways: []ToldWay{}, Open: a.Open}
	slots := q.Policy.Slots()
	for i := range a.Ways {
		w := &a.Ways[i]
		t := ToldWay{Verdict: string(w.Outcome), By: ruleOf(q.Policy, slots[w.Slot])}
		for k := range w.From {
			f := &w.From[k]
			kind := (&Part{Classes: f.Classes, Tags: f.Tags}).kind()
			prefixes := make([]string, len(f.Prefixes))
			for i, p := range f.Prefixes {
				prefixes[i] = bare(p)
			}
			t.From = append(t.From, ToldSources{kind, f.All, prefixes, f.Words, f.Unknown})
		}
		out.Ways = append(out.Ways, t)
	}
	return out
}

// shownSources is the number of packet kinds of one rule that are written out.
const shownSources = 8

// shownPrefixes is the number of prefixes of one line that are written out.
const shownPrefixes = 6

// Print writes answers for people: who gets there, then who does not.
func (t *ToldAnswer) Print(w io.Writer) {
	for _, passes := range []bool{true, false} {
		for i := range t.Ways {
			if way := &t.Ways[i]; way.passes() == passes {
				way.print(w)
			}
		}
	}
	if t.Open {
		fmt.Fprintln(w, "there are more kinds of packets than could be followed: this is not all")
	}
}

func (t *ToldWay) passes() bool {
	return t.Verdict != string(Drop) && t.Verdict != string(Answer)
}

func (t *ToldWay) print(w io.Writer) {
	fmt.Fprintf(w, "%s  %s\n", t.Verdict, t.By.line())
	for i := range t.From {
		if i == shownSources && len(t.From) > shownSources+1 {
			fmt.Fprintf(w, "    and %d more kinds of packets\n", len(t.From)-shownSources)
			break
		}
		fmt.Fprintf(w, "    %s\n", t.From[i].line())
	}
}

func (t *ToldSources) line() string {
	text := "from anywhere"
	if !t.All {
		text = "from " + strings.Join(t.Prefixes[:min(shownPrefixes, len(t.Prefixes))], ", ")
		if n := len(t.Prefixes); n > shownPrefixes {
			text += fmt.Sprintf(" and %d more", n-shownPrefixes)
		}
	}
	if t.Match != "" {
		text += ", " + t.Match
	}
	for _, d := range t.Depends {
		text += ", if " + d
	}
	return text + "  (" + t.Kind + ")"
}
