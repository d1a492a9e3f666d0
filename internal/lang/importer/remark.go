package importer

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
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
}

// String is the remark in one line: "rules.v4:12: left out: -A INPUT ...: why; what to do instead".
func (r Remark) String() string {
	var b strings.Builder
	b.WriteString(r.File)
	if r.Line > 0 {
		fmt.Fprintf(&b, ":%d", r.Line)
	}
	fmt.Fprintf(&b, ": %s: ", r.Kind)
	if r.Rule != "" {
		b.WriteString(r.Rule + ": ")
	}
	b.WriteString(r.Text)
	if r.Instead != "" {
		b.WriteString("; " + r.Instead)
	}
	return b.String()
}

// Imported is what an import of a whole ruleset did.
type Imported struct {
	Rules   int      // pass, drop and count statements written
	Sets    int      // named sets written
	Remarks []Remark // about all of it first, then in the order in which rules are looked at
	More    int      // remarks beyond the first 50,000
}

const maxRemarks = 50_000

func (r *Imported) add(m Remark) {
	if len(r.Remarks) == maxRemarks {
		r.More++
		return
	}
	r.Remarks = append(r.Remarks, m)
}

// WriteRemarks prints the remarks as JSON, one object a line, and at the end one with `rules`,
// `sets` and `more`.
func WriteRemarks(w io.Writer, rep Imported) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, r := range rep.Remarks {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("writing remarks: %w", err)
		}
	}
	err := enc.Encode(struct {
		Rules int `json:"rules"`
		Sets  int `json:"sets"`
		More  int `json:"more"`
	}{rep.Rules, rep.Sets, rep.More})
	if err != nil {
		return fmt.Errorf("writing remarks: %w", err)
	}
	return nil
}
