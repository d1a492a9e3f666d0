package probe

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/quantity"
)

// shownEach is the number of lines of a kind that are shown without a question for all of them.
const shownEach = 20

// Print writes a report for people; all shows what is alike in lines of its own, too.
func (r *Report) Print(w io.Writer, all bool) {
	p := printer{w, all}
	for i := range r.Prefixes {
		p.prefix(&r.Prefixes[i])
	}
	p.line("%s in %.4g s; lost on the way there: %s; there and back from the witness: %s",
		quantity.Plural(r.Sent, "packet"), r.Seconds, r.Loss.There, r.Loss.AndBack)
	if n := r.Loss.Unread + r.Loss.Unwatched; n > 0 {
		p.line("not read here: %d; not told by witnesses: %d", r.Loss.Unread, r.Loss.Unwatched)
	}
	for _, n := range r.Notes {
		p.line("note: %s", n)
	}
	p.targets(r.Targets)
	p.classes(r)
	p.disagreements(r.Disagreements, r.Asked)
}

type printer struct {
	io.Writer
	all bool
}

// line prints a line, in which what others say does not act on a terminal.
func (p *printer) line(format string, args ...any) {
	fmt.Fprintln(p, diag.Escaped(fmt.Sprintf(format, args...)))
}

func (p *printer) prefix(x *PrefixReport) {
	p.line("%s of %s: %d of %s confirmed by %s on %s (%s)", x.Prefix, diag.Quoted(x.Owner),
		x.Confirmed, quantity.Plural(x.Addresses, "address"), x.Witness, x.Dev, x.Policy)
	if len(x.Unconfirmed) > 0 && x.Confirmed > 0 {
		shown := x.Unconfirmed[:min(len(x.Unconfirmed), 5)]
		more := ""
		if n := len(x.Unconfirmed) - len(shown); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		p.line("  not seen there, and not probed: %s%s", strings.Join(shown, ", "), more)
	}
	if x.Stopped != "" {
		p.line("  stopped: %s", x.Stopped)
	}
}

// targets prints services: the open ones each, the others by what they have in common.
func (p *printer) targets(all []Target) {
	states := map[State]int{}
	type key struct {
		state State
		why   string
	}
	alike := map[key][]*Target{}
	var order []key
	for i := range all {
		t := &all[i]
		states[t.State]++
		if t.State == Open {
			continue
		}
		k := key{t.State, t.Why}
		if alike[k] == nil {
			order = append(order, k)
		}
		alike[k] = append(alike[k], t)
	}
	if len(all) == 0 {
		return
	}
	p.line("")
	p.line("%d open, %d closed, %d filtered, %d unknown", states[Open], states[Closed],
		states[Filtered], states[Unknown])
	shown := 0
	for i := range all {
		t := &all[i]
		if t.State != Open {
			continue
		}
		if shown++; shown > shownEach && !p.all {
			p.line("open      and %d more: --all shows them", states[Open]-shownEach)
			break
		}
		p.line("open      %s", strings.TrimSpace(t.name()+"  "+t.Banner))
	}
	slices.SortStableFunc(order, func(a, b key) int { return cmp.Compare(a.state, b.state) })
	for _, k := range order {
		of := alike[k]
		if p.all {
			for _, t := range of {
				text := fmt.Sprintf("%-8s  %s  %s", k.state, t.name(), k.why)
				p.line("%s", strings.TrimRight(text, " "))
			}
			continue
		}
		text := of[0].name()
		if n := len(of) - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		if k.why != "" {
			text += ": " + k.why
		}
		p.line("%-8s  %s", k.state, text)
	}
}

func (t *Target) name() string { return fmt.Sprintf("%s %s %d", t.Address, t.Proto, t.Port) }

// classes prints the classes of policies.
func (p *printer) classes(r *Report) {
	if len(r.Classes)+len(r.Skipped) == 0 {
		return
	}
	p.line("")
	p.line("%d kinds of packets of the policy asked for, %d not", len(r.Classes), len(r.Skipped))
	if !p.all {
		return
	}
	for i := range r.Classes {
		c := &r.Classes[i]
		p.line("%s: packet %s", c.Kind, c.Packet)
		p.line("    %s", c.Seen.line())
	}
	for _, s := range r.Skipped {
		p.line("not asked: %s by %s: %s", s.Kind, s.Rule, s.Why)
	}
}

// line returns the three views in one line.
func (s *Seen) line() string {
	return fmt.Sprintf("predicted %s; counted %s; observed %s", s.Predicted.words(),
		s.Counted.words(), s.Observed)
}

func (j *Judged) words() string {
	if j == nil {
		return "nothing"
	}
	return j.Verdict + " by " + j.Rule
}

func (p *printer) disagreements(all []Disagreement, asked int) {
	wrong := slices.DeleteFunc(slices.Clone(all), func(d Disagreement) bool { return d.RunTime })
	p.line("")
	switch {
	case asked == 0:
		p.line("nothing was asked")
	case len(wrong) == 0:
		p.line("predicted, counted and observed agree in %s", quantity.Plural(asked, "question"))
	default:
		p.line("%s in %s", quantity.Plural(len(wrong), "disagreement"),
			quantity.Plural(asked, "question"))
		p.each(wrong)
	}
	if depends := slices.DeleteFunc(slices.Clone(all), func(d Disagreement) bool {
		return !d.RunTime
	}); len(depends) > 0 {
		p.line("%s only run time can tell", quantity.Plural(len(depends), "kind"))
		p.each(depends)
	}
}

func (p *printer) each(all []Disagreement) {
	for i := range all {
		d := &all[i]
		if i == shownEach && !p.all {
			p.line("and %d more: --all shows them", len(all)-i)
			return
		}
		p.line("%d. %s", i+1, d.Why)
		p.line("   predicted  %s", d.Predicted.words())
		p.line("   counted    %s", d.Counted.words())
		p.line("   observed   %s", d.Observed)
		p.line("   %s, as %s", quantity.Plural(d.Probes, "probe"), d.Example)
	}
}

// Agrees says whether all that was asked was confirmed, and no views differ.
func (r *Report) Agrees() bool {
	for i := range r.Prefixes {
		if r.Prefixes[i].Stopped != "" || r.Prefixes[i].Confirmed == 0 {
			return false
		}
	}
	return !slices.ContainsFunc(r.Disagreements, func(d Disagreement) bool { return !d.RunTime })
}
