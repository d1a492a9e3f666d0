package main

import (
	"fmt"
	"io"
	"strings"

	"levee/internal/cli"
	"levee/internal/filter/oracle"
)

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
