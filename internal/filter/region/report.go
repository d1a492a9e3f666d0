package region

import (
	"fmt"
	"io"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// Told is the result of Compare as JSON.
type Told struct {
	Differences []ToldDifference `json:"differences"`
	// Open counts the pairs of rules of which it takes too long to say whether they decide a packet
	// otherwise.
	Open int  `json:"open"`
	Cut  bool `json:"cut"` // it ended before all was compared
}

// ToldDifference is a Difference in words.
type ToldDifference struct {
	Was    string     `json:"was"` // in the words of Outcome
	Is     string     `json:"is"`
	Before ToldRule   `json:"before"`
	After  ToldRule   `json:"after"`
	Parts  []ToldPart `json:"packets"`
	// Test are the steps of a test that shows a packet, with what the second policy decides. Empty
	// where no test can show one.
	Test []string `json:"test"`
}

// ToldRule names the rule that decides.
type ToldRule struct {
	Where string `json:"where"`
	Text  string `json:"text,omitempty"` // of a rule of the policy
}

// ToldPart is a Part in words.
type ToldPart struct {
	Kind    string   `json:"kind"`
	Match   string   `json:"match"`
	Depends []string `json:"depends,omitempty"`
	Unless  int      `json:"unless"`
	Hidden  []string `json:"hidden,omitempty"`
}

// Tell puts what was found in words.
func (c *Compared) Tell(a, b *policy.Policy) Told {
	if a.Out != nil || b.Out != nil {
		a, b = leaving(a), leaving(b) // which have the slots of both sides
	}
	out := Told{Differences: []ToldDifference{}, Open: c.Open, Cut: c.Cut}
	before, after := a.Slots(), b.Slots()
	for i := range c.Differences {
		d := &c.Differences[i]
		t := ToldDifference{Was: string(d.Was), Is: string(d.Is), Before: ruleOf(a, before[d.A]),
			After: ruleOf(b, after[d.B]), Test: []string{}}
		for _, p := range d.Parts {
			kind := p.kind()
			if d.Leaves {
				kind = strings.TrimSuffix("what leaves: "+kind, ": ")
			}
			t.Parts = append(t.Parts, ToldPart{kind, p.Words, p.Unknown, p.Unless,
				p.Hidden})
		}
		if d.Example != nil {
			t.Test = d.Example.Steps()
			t.Test[len(t.Test)-1] += " expect " + d.Is.verdict()
		}
		out.Differences = append(out.Differences, t)
	}
	return out
}

func ruleOf(p *policy.Policy, s policy.Slot) ToldRule {
	out := ToldRule{Where: p.Where(s)}
	if s.Rule != nil {
		out.Text = s.Rule.Text
	}
	return out
}

// verdict returns what a test expects of a packet of which that becomes.
func (o Outcome) verdict() string {
	switch {
	case o == Drop || o == Answer:
		return "drop"
	case strings.HasPrefix(string(o), action.Redirect.String()):
		return action.Redirect.String()
	}
	return "pass"
}

// kind returns the classes and tags in words.
func (p *Part) kind() string {
	text := kindsOf(p.Classes)
	if len(p.Tags) == 0 || len(p.Tags) == 3 {
		return text
	}
	var tags []string
	for _, n := range p.Tags {
		tags = append(tags, [...]string{"untagged", "with one tag", "with two tags"}[n])
	}
	return text + ", " + strings.Join(tags, " or ")
}

// shownParts is the number of packet kinds of one difference that are written out.
const shownParts = 3

// Print writes what was found for people, at most so many differences.
func (t *Told) Print(w io.Writer, most int) {
	for i := range t.Differences {
		if i == most {
			fmt.Fprintf(w, "%d more\n", len(t.Differences)-most)
			break
		}
		d := &t.Differences[i]
		fmt.Fprintf(w, "%d. %s -> %s\n", i+1, d.Was, d.Is)
		for k, p := range d.Parts {
			if k == shownParts {
				fmt.Fprintf(w, "   packets  %d more kinds\n", len(d.Parts)-shownParts)
				break
			}
			fmt.Fprintf(w, "   packets  %s\n", p.line())
		}
		fmt.Fprintf(w, "   before   %s\n   after    %s\n", d.Before.line(), d.After.line())
		for _, step := range d.Test {
			fmt.Fprintf(w, "   test     %s\n", step)
		}
		if len(d.Test) == 0 {
			fmt.Fprintln(w, "   test     none can show it")
		}
	}
	if t.Cut {
		fmt.Fprintln(w, "this is not all: the comparison was ended")
	}
	if t.Open > 0 {
		fmt.Fprintf(w, "of %d pairs of rules it takes too long to say\n", t.Open)
	}
}

// Short returns the line that says how much was found.
func (t *Told) Short() string {
	switch n := len(t.Differences); {
	case t.Cut:
		return fmt.Sprintf("at least %d kinds of packets are decided otherwise", n)
	case n == 1:
		return "1 kind of packets is decided otherwise"
	case n > 1:
		return fmt.Sprintf("%d kinds of packets are decided otherwise", n)
	}
	return "no packet is decided otherwise"
}

func (p *ToldPart) line() string {
	text := p.Kind
	if p.Match != "" {
		text += ": " + p.Match
	}
	for _, d := range p.Depends {
		text += ", if " + d
	}
	switch {
	case p.Unless == 1:
		text += ", unless a rule in front decides"
	case p.Unless > 1:
		text += fmt.Sprintf(", unless one of %d rules in front decides", p.Unless)
	}
	if len(p.Hidden) > 0 {
		text += ", as where " + strings.Join(p.Hidden, " and ")
	}
	return text
}

func (r *ToldRule) line() string {
	if r.Text == "" {
		return r.Where
	}
	return r.Where + "  " + r.Text
}

// Lines returns the first differences, a line each.
func (t *Told) Lines(most int) (out []string) {
	for i := range t.Differences[:min(most, len(t.Differences))] {
		d := &t.Differences[i]
		out = append(out, fmt.Sprintf("%s -> %s  %s", d.Was, d.Is, d.Parts[0].line()))
	}
	return out
}
