package importer

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/importer/match"
	"levee/internal/quantity"
)

// Kind says what became of a rule, or of a part of it.
type Kind string

const (
	LeftOut Kind = "left out" // it is not in the policy
	Changed Kind = "changed"  // it is in the policy, but does not mean quite the same
	Noticed Kind = "note"     // something to know; no packet is judged otherwise because of it
)

// Remark is one thing that a reader of an imported policy has to know.
type Remark struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"` // from 1; 0 for all of the file
	// the rule as its tool writes it, or its handle; cut short
	Rule    string `json:"rule,omitempty"`
	Kind    Kind   `json:"kind"`
	Text    string `json:"text"`              // what, and why
	Instead string `json:"instead,omitempty"` // what to do about it
	// the policy may pass packets that the source drops
	Widens bool `json:"widens,omitempty"`

	place string // where the rule stands, if not in a line of its own: its handle
}

// String returns the remark in one line: "rules.v4:12: left out: -A INPUT ...: why; what to do
// instead".
func (r Remark) String() string {
	var b strings.Builder
	b.WriteString(r.File)
	if r.Line > 0 {
		fmt.Fprintf(&b, ":%d", r.Line)
	}
	b.WriteString(": " + r.kind() + ": ")
	if r.Rule != "" {
		b.WriteString(r.Rule + ": ")
	}
	b.WriteString(r.Text)
	if r.Instead != "" {
		b.WriteString("; " + r.Instead)
	}
	return b.String()
}

func (r Remark) kind() string {
	if r.Widens {
		return string(r.Kind) + ", widens"
	}
	return string(r.Kind)
}

// Fates count what became of the rules that decide something.
type Fates struct {
	Given     int `json:"given"`     // of the imported chains
	Same      int `json:"same"`      // carry as they are
	Changed   int `json:"changed"`   // carry, and mean not quite the same
	LeftOut   int `json:"leftOut"`   // are not in the policy
	Elsewhere int `json:"elsewhere"` // are about other interfaces
	Loopback  int `json:"loopback"`  // are about packets of the machine to itself
	Widened   int `json:"widened"`   // changed or left out so that more packets may pass
	// the states that rules keep are told by headers, so that more packets may pass
	States bool `json:"states,omitempty"`
}

// String returns the summary in one line.
func (f Fates) String() string {
	also := ""
	if f.States {
		also = ", and with the states that they keep,"
	}
	loopback := ""
	if f.Loopback > 0 {
		loopback = fmt.Sprintf(", %d about loopback", f.Loopback)
	}
	decide := "decide"
	if f.Given == 1 {
		decide = "decides"
	}
	return fmt.Sprintf("of %s that %s, %d as in the source, %d changed, %d left out, %d about "+
		"other interfaces%s; with %d of them%s the policy may pass more",
		quantity.Plural(f.Given, "rule"), decide, f.Same, f.Changed, f.LeftOut, f.Elsewhere,
		loopback, f.Widened, also)
}

// Imported counts the statements of an imported ruleset, and has its remarks.
type Imported struct {
	Rules   int      // pass, drop and count statements written
	Sets    int      // named sets written
	Remarks []Remark // about all of it first, then in the order in which rules are looked at
	More    int      // remarks beyond the first 50,000
	Fates   Fates
	Leaving Fates // of the rules for what leaves, if the policy has these
	// Passes are matches, as a policy writes them, of the packets that the policy may pass though
	// the source drops them; at most 10,000.
	Passes []string

	seen map[string]bool // of Passes
}

// Summary returns what became of the rules, in one line.
func (r *Imported) Summary() string {
	if r.Leaving == (Fates{}) {
		return r.Fates.String()
	}
	return r.Fates.String() + "; what leaves: " + r.Leaving.String()
}

// widens tells whether the policy may pass what the source drops.
func (r *Imported) widens() bool {
	return r.Fates.Widened > 0 || r.Fates.States ||
		slices.ContainsFunc(r.Remarks, func(m Remark) bool { return m.Widens })
}

const maxPasses = 10_000

func (r *Imported) pass(m *match.Match) {
	if len(r.Passes) == maxPasses {
		return
	}
	text := m.Text()
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	if !r.seen[text] {
		r.seen[text] = true
		r.Passes = append(r.Passes, text)
	}
}

// Group is remarks of one kind: the first of them, and where the others are.
type Group struct {
	Remark
	Places []string // of the others
}

// Groups returns the remarks with those of the same text put together, in the order of the first.
func (r *Imported) Groups() (out []*Group) {
	type key struct {
		kind          Kind
		text, instead string
		widens        bool
	}
	index := map[key]*Group{}
	for _, m := range r.Remarks {
		k := key{m.Kind, m.Text, m.Instead, m.Widens}
		g := index[k]
		if g == nil {
			index[k] = &Group{Remark: m}
			out = append(out, index[k])
			continue
		}
		place := m.place
		if place == "" {
			place = "line " + strconv.Itoa(m.Line)
		}
		if m.File != g.File {
			place = m.File + " " + place
		}
		g.Places = append(g.Places, place)
	}
	return out
}

// String returns the first remark, and behind it where the others are.
func (g *Group) String() string {
	const most = 10
	text := g.Remark.String()
	if len(g.Places) == 0 {
		return text
	}
	text += " (the same: " + strings.Join(g.Places[:min(most, len(g.Places))], ", ")
	if rest := len(g.Places) - most; rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text + ")"
}

const maxRemarks = 50_000

// Add adds a remark behind the others.
func (r *Imported) Add(m Remark) {
	if len(r.Remarks) == maxRemarks {
		r.More++
		return
	}
	r.Remarks = append(r.Remarks, m)
}

// WriteRemarks prints the remarks as JSON, one object a line, and at the end one with `rules`,
// `sets`, `more` and `fates`.
func WriteRemarks(w io.Writer, rep Imported) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, r := range rep.Remarks {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("writing remarks: %w", err)
		}
	}
	err := enc.Encode(struct {
		Rules   int   `json:"rules"`
		Sets    int   `json:"sets"`
		More    int   `json:"more"`
		Fates   Fates `json:"fates"`
		Leaving Fates `json:"leaving"`
	}{rep.Rules, rep.Sets, rep.More, rep.Fates, rep.Leaving})
	if err != nil {
		return fmt.Errorf("writing remarks: %w", err)
	}
	return nil
}
