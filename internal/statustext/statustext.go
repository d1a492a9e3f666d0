// Package statustext prints what a status tells of policies in force, for people: the tables that
// interfaces and services have in common, and services. It must never leave out a rule that has
// counted.
package statustext

import (
	"fmt"
	"io"
	"strings"
	"time"

	"levee/internal/cli"
	"levee/internal/dataplane/status"
	"levee/internal/filter/state"
	"levee/internal/lang/diag"
)

// Tables prints rules with their counters, limits and dynamic sets; with rates if rated.
func Tables(w io.Writer, rules []status.Rule, limits []state.Budgets, sets []status.Set,
	rated bool) {
	printRules(w, rules, rated)
	printLimits(w, limits)
	printSets(w, sets)
}

func printRules(w io.Writer, rules []status.Rule, rated bool) {
	t := cli.NewTable("PACKETS BYTES VERDICT RULE LABEL MATCH", ">", ">", "<", "<", "<", "<")
	if rated {
		t = cli.NewTable("PACKETS BYTES PACKETS/S BIT/S VERDICT RULE LABEL MATCH", ">", ">",
			">", ">", "<", "<", "<", "<")
	}
	for _, r := range rules {
		switch {
		case r.Quiet():
		case rated:
			t.Row(r.Packets, r.Bytes, shortRate(r.PacketsPerSecond), shortRate(r.BitsPerSecond),
				r.Verdict, r.Rule, r.Label, r.Unlabelled())
		default:
			t.Row(r.Packets, r.Bytes, r.Verdict, r.Rule, r.Label, r.Unlabelled())
		}
	}
	t.Print(w, "  ")
}

// printLimits prints how full the memories of limits are.
func printLimits(w io.Writer, limits []state.Budgets) {
	if len(limits) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := cli.NewTable("LIVE SLOTS EVICTED INHERITED CONTENDED LIMIT LABEL",
		">", ">", ">", ">", ">", "<", "<")
	for _, l := range limits {
		debt := "-"
		if d := l.Inherited(); d > 0 {
			debt = d.String()
		}
		t.Row(l.Live, l.Slots, l.Evicted, debt, l.Contended, l.Rule, l.Label)
	}
	t.Print(w, "  ")
}

func printSets(w io.Writer, sets []status.Set) {
	if len(sets) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := cli.NewTable("SET ENTRIES MAX REFUSED LEASE", "<", ">", ">", ">", ">")
	for _, set := range sets {
		lease := "until deleted"
		if set.LeaseSeconds > 0 {
			lease = cli.FormatLease(time.Duration(set.LeaseSeconds * float64(time.Second)))
		}
		t.Row(set.Name, set.Entries, set.Max, set.Refused, lease)
	}
	t.Print(w, "  ")
}

// Changed prints which files of a policy hold something else than it has in force.
func Changed(w io.Writer, files []diag.Shown) {
	if len(files) == 0 {
		return
	}
	var names []string
	for _, f := range files {
		names = append(names, string(f))
	}
	fmt.Fprintf(w, "  changed  %s, since it was put in force\n", strings.Join(names, ", "))
}

// Services prints the services that have a policy, each behind an empty line.
func Services(w io.Writer, all []status.Service, now time.Time, rated bool) {
	for i := range all {
		s := &all[i]
		// the clock may have been set back
		fmt.Fprintf(w, "\nservice %s: %s, %s, for %s\n", s.Service, diag.Base(string(s.Policy)),
			s.Hook, max(0, now.Sub(s.Since)).Round(time.Second))
		fmt.Fprintf(w, "  policy   %s, sha256 %.12s\n", s.Policy, s.Hash)
		if !s.InForce {
			fmt.Fprintf(w, "  note     not in force: %s\n", s.Why)
		}
		fmt.Fprintf(w, "  program  id %d, %s of machine code\n", s.Program.ID,
			cli.Plural(s.Program.JitedLen, "byte"))
		for _, l := range s.Memories.Words("") {
			if l.Key != "" {
				fmt.Fprintf(w, "  %-8s %s\n", l.Key, l.Status)
			}
		}
		Changed(w, s.Changed)
		fmt.Fprintln(w)
		Tables(w, s.Rules, s.Limits, s.Sets, rated)
	}
}

// shortRate returns a rate in three digits or so: 12, 3.4k, 1.25M; nothing where there is none.
func shortRate(v *float64) string {
	if v == nil {
		return ""
	}
	x, unit := *v, ""
	for _, u := range []string{"k", "M", "G", "T"} {
		if x < 999.5 {
			break
		}
		x, unit = x/1000, u
	}
	if unit == "" {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g%s", x, unit)
}
