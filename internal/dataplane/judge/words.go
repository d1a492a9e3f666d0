package judge

import (
	"fmt"

	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// Judged is one judged packet: the object of `levee eval --json`.
type Judged struct {
	N       int        `json:"n"` // from 1
	Verdict string     `json:"verdict"`
	Rule    diag.Shown `json:"rule"`
	Label   string     `json:"label"`
	Reason  string     `json:"reason"`
	Engine  string     `json:"engine"`
}

// NewJudged puts the decision of a slot into words.
func NewJudged(p *policy.Policy, s policy.Slot, a action.Action, n int, by Engine) Judged {
	return Judged{N: n, Verdict: a.String(), Rule: diag.Shown(p.Where(s)), Label: p.LabelOf(s),
		Reason: s.Reason.String(), Engine: string(by)}
}

// String returns the line of `levee eval`: `1 drop edge.levee:14 "abuser"`.
func (v Judged) String() string {
	return fmt.Sprintf("%d %s %s%s", v.N, v.Verdict, v.Rule, v.Note())
}

// Note returns what stands behind the rule: the label that the operator gave, or what else decided.
func (v Judged) Note() string {
	switch {
	case v.Reason == policy.ByProtect.String() && v.Label != "":
		return fmt.Sprintf(" %q (protect)", v.Label)
	case v.Reason == policy.ByProtect.String(), v.Reason == policy.ByDefault.String():
		return " (" + v.Reason + ")"
	case v.Reason == policy.ByRule.String() && v.Label != "":
		return fmt.Sprintf(" %q", v.Label)
	}
	return ""
}

// Story is the object of `levee explain --json`.
type Story struct {
	Judged
	Fault  string       `json:"fault,omitempty"` // why the frame is malformed
	Layers []StoryLayer `json:"layers"`
	Tried  []StoryRule  `json:"tried"`
	// where a rule came to ask whether the packet is of one
	Connections *Connections `json:"connections,omitempty"`
	Why         string       `json:"why"`
}

// StoryLayer is one header.
type StoryLayer struct {
	Name   string            `json:"name"`
	Offset int               `json:"offset"`
	Length int               `json:"length"`
	Fields map[string]string `json:"fields,omitempty"`
}

// StoryRule is a rule that was tried.
type StoryRule struct {
	Rule    diag.Shown `json:"rule"`
	Text    string     `json:"text"`
	Matched bool       `json:"matched"`
	Term    string     `json:"term,omitempty"`   // the first term that does not hold
	Got     string     `json:"got,omitempty"`    // what the packet has in its place
	Effect  string     `json:"effect,omitempty"` // what a rule does that matches and lets it on
}

// NewStory puts a trace into words.
func NewStory(p *policy.Policy, tr *oracle.Trace, n int) Story {
	s := Story{
		Judged: NewJudged(p, tr.Slot, tr.Result.Action, n, Oracle),
		Fault:  tr.Fault,
		Layers: []StoryLayer{}, Tried: []StoryRule{},
		Why: tr.Why,
	}
	for _, l := range tr.Layers {
		fields := make(map[string]string, len(l.Fields))
		for _, f := range l.Fields {
			fields[f.Name] = f.Value
		}
		s.Layers = append(s.Layers, StoryLayer{l.Name, l.Offset, l.Length, fields})
	}
	for _, t := range tr.Tried {
		s.Tried = append(s.Tried, StoryRule{diag.Shown(t.Where), t.Text, t.Matched, t.Term, t.Got,
			t.Effect})
	}
	return s
}
