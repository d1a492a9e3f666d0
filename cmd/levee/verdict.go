package main

import (
	"fmt"
	"io"
	"strings"

	"levee/internal/cli"
	"levee/internal/dataplane/judge"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// verdict is one judged packet: the object of `levee eval --json`.
type verdict struct {
	N       int       `json:"n"` // from 1
	Verdict string    `json:"verdict"`
	Rule    cli.Shown `json:"rule"`
	Label   string    `json:"label"`
	Reason  string    `json:"reason"`
	Engine  string    `json:"engine"`
}

// newVerdict puts the decision of a slot into words.
func newVerdict(p *policy.Policy, s policy.Slot, a action.Action, n int, by judge.Engine) verdict {
	return verdict{N: n, Verdict: a.String(), Rule: cli.Shown(p.Where(s)), Label: p.LabelOf(s),
		Reason: s.Reason.String(), Engine: string(by)}
}

// String is the line of `levee eval`: `1 drop edge.levee:14 "abuser"`.
func (v verdict) String() string {
	return fmt.Sprintf("%d %s %s%s", v.N, v.Verdict, v.Rule, v.note())
}

// note is what stands behind the rule: the label that the operator gave, or what else decided.
func (v verdict) note() string {
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

// story is the object of `levee explain --json`.
type story struct {
	verdict
	Fault  string       `json:"fault,omitempty"` // why the frame is malformed
	Layers []storyLayer `json:"layers"`
	Tried  []storyRule  `json:"tried"`
	Why    string       `json:"why"`
}

type storyLayer struct {
	Name   string            `json:"name"`
	Offset int               `json:"offset"`
	Length int               `json:"length"`
	Fields map[string]string `json:"fields,omitempty"`
}

type storyRule struct {
	Rule    cli.Shown `json:"rule"`
	Text    string    `json:"text"`
	Matched bool      `json:"matched"`
	Term    string    `json:"term,omitempty"`   // the first term that does not hold
	Got     string    `json:"got,omitempty"`    // what the packet has in its place
	Effect  string    `json:"effect,omitempty"` // what a rule does that matches and lets it on
}

func newStory(p *policy.Policy, tr *oracle.Trace, n int) story {
	s := story{
		verdict: newVerdict(p, tr.Slot, tr.Result.Action, n, judge.Oracle),
		Fault:   tr.Fault,
		Layers:  []storyLayer{}, Tried: []storyRule{},
		Why: tr.Why,
	}
	for _, l := range tr.Layers {
		fields := make(map[string]string, len(l.Fields))
		for _, f := range l.Fields {
			fields[f.Name] = f.Value
		}
		s.Layers = append(s.Layers, storyLayer{l.Name, l.Offset, l.Length, fields})
	}
	for _, t := range tr.Tried {
		s.Tried = append(s.Tried, storyRule{cli.Shown(t.Where), t.Text, t.Matched, t.Term, t.Got,
			t.Effect})
	}
	return s
}

// printTrace tells the story of one packet, each line behind indent: headers, rules that were
// looked at, the decision.
func printTrace(w io.Writer, tr *oracle.Trace, indent string) {
	headers := cli.NewTable("", "<", "<", "<")
	for _, l := range tr.Layers {
		var fields []string
		for _, f := range l.Fields {
			fields = append(fields, f.Name+" "+f.Value)
		}
		headers.Row(l.Name, fmt.Sprintf("at %d, %s", l.Offset, cli.Plural(l.Length, "byte")),
			strings.Join(fields, ", "))
	}
	headers.Print(w, indent)
	fmt.Fprintln(w)
	rules := cli.NewTable("", "<", "<", "<")
	for _, t := range tr.Tried {
		outcome := "matches"
		if t.Effect != "" {
			outcome += ", and " + t.Effect
		}
		if !t.Matched {
			outcome = fmt.Sprintf("no: %s", t.Got)
			if t.Term != "" {
				outcome += fmt.Sprintf(", the rule asks for `%s`", t.Term)
			}
		}
		rules.Row(t.Where, t.Text, outcome)
	}
	if len(tr.Tried) > 0 {
		rules.Print(w, indent)
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s%s\n", indent, tr.Why)
}
