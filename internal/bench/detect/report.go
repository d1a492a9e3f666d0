package detect

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"levee/internal/bench"
	"levee/internal/lab/demo"
	"levee/internal/lab/tally"
	"levee/internal/report"
)

var caveats = []string{
	bench.VethCaveat,
	"two cores: the server's receives before all else on it; the world's has the generator and " +
		"the clients, who come before it. The agent has what is left of both, so that a flood " +
		"that is not dropped yet takes time from it, which it would not on a machine of more " +
		"cores; its niceness is that of its unit, -20, the flood's -10",
	fmt.Sprintf("good clients: %s, from 16 addresses, some 800 packets a second to the host; "+
		"each request counts from when it was due, and fails after %v",
		strings.Join(demo.Whats, ", "), demo.Patience),
	"forged packets come from all of IPv4 without the clients' network, each source once, with " +
		"the hop count of the clients; a reflection from 2,000 resolvers, random UDP from 16,384 " +
		"sources. What the generator leaves alike in all (windows, contents of zeros) may tell a " +
		"flood, but syn-linux and udp-random leave nothing",
	fmt.Sprintf("\"to the drop\" is the first %v in which XDP dropped half of what came of the "+
		"flood or more, counted from its first packet; of several waves the slowest", every),
	"\"dropped\" is of what XDP took from the ring, from 2 s after the start of each wave; of " +
		"several waves the least. A cookie that answers in XDP counts as a drop",
	"\"lost\" is what XDP dropped of the clients' packets while the flood lasted; collateral is " +
		"measured until the rules are gone. What found the ring full is apart: it is the flood's " +
		"doing",
}

// Raw returns what JSON has besides the document.
func (r *Report) Raw() any {
	own := struct {
		bench.Head
		Rate   float64    `json:"rate_pps"`
		Policy string     `json:"policy"`
		Rest   *Cost      `json:"rest"`
		Floods []*Figures `json:"floods"`
	}{r.Head, r.Rate, r.Policy, r.Rest, []*Figures{}}
	for _, row := range r.Rows {
		own.Floods = append(own.Floods, row.figures(r.Rate))
	}
	return own
}

// marked has a mark where a goal is missed.
func marked(text string, missed bool) string {
	if missed {
		return text + " !"
	}
	return text
}

// show returns a figure for a person.
func show(f figure, format string, scale float64) string {
	switch {
	case !f.is():
		return "-"
	case math.IsInf(float64(f), 1):
		return "never"
	}
	return fmt.Sprintf(format, scale*float64(f))
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	t := r.Head.Text("", "; these are the floods until then")
	t.Printf("floods of %s packets/s; times in s, shares in %%; ! misses its goal\n",
		demo.SI(r.Rate))
	if c := r.Rest; c != nil {
		t.Printf("at rest, %.0f packets/s of clients: %.2f %% of a core, %.1f MB%s\n", c.Good,
			100*c.Core, float64(c.Memory)/1e6, restMissed(c))
	}
	t.Printf("\n")
	t.Table(0, func(w io.Writer) {
		fmt.Fprint(w, "flood\tto the drop\tdropped\tlost\tring full\tanswered\tgone after\t"+
			"collateral: predicted, measured\tcore\tMB\t\n")
		fmt.Fprintf(w, "goal\t%.0f\t%.0f\t%.1f\t\t\t%.0f\twithin a factor of %.0f\t%.0f\t\t\n",
			goalDrop, 100*goalDropped, 100*goalLost, goalGone, goalFactor, 100*goalCore)
		for _, row := range r.Rows {
			f := row.figures(r.Rate)
			if f.Missing != "" {
				fmt.Fprintf(w, "%s\t%s\t\n", f.Flood, f.Missing)
				continue
			}
			drop := marked(show(f.Drop, "%.3f", 1), !(f.Drop <= goalDrop))
			if row.ramp {
				drop = marked("wasted "+show(f.Wasted, "%.1f %%", 100),
					!f.Drop.is() || f.Wasted > goalWasted)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s, %s\t%s\t%.0f\t\n", f.Flood, drop,
				marked(show(f.Dropped, "%.3f", 100), f.Dropped < goalDropped),
				marked(show(f.Lost, "%.3f", 100), f.Lost > goalLost),
				show(f.Refused, "%.2f", 100),
				show(f.Answered, "%.1f", 100),
				marked(show(f.Gone, "%.0f", 1), f.Gone > goalGone),
				show(f.Predicted, "%.3f", 100),
				marked(show(f.Measured, "%.3f", 100), f.Predicted.is() && f.Measured.is() &&
					!f.near()),
				marked(fmt.Sprintf("%.1f", 100*f.Cost.Core), f.Cost.Core > goalCore),
				float64(f.Cost.Memory)/1e6)
		}
	})
	for _, row := range r.Rows {
		row.text(t, row.figures(r.Rate))
	}
	t.Printf("\n")
	return t.End(w, &r.Head)
}

func restMissed(c *Cost) string {
	if c.Core > goalRestCore || float64(c.Memory) > goalMemory {
		return fmt.Sprintf(" ! goal: %.0f %% and %.0f MB", 100*goalRestCore, goalMemory/1e6)
	}
	return ""
}

// text prints the defender's words and actions against the flood of a row.
func (row *Row) text(t *bench.Text, f *Figures) {
	if f.Missing != "" {
		return
	}
	t.Printf("\n%s: %s\n", f.Flood, f.What)
	t.Printf("  %s packets/s offered, %s/s taken; answered %s %% before, %s %% from 2 s on; %d of "+
		"%d packets of clients dropped%s; clients of a kind worse off for %s s; drop known to "+
		"%.0f ms, end of rules to %.0f ms\n",
		demo.SI(f.Cost.Offered), demo.SI(f.Cost.Flood), show(f.Quiet, "%.1f", 100),
		show(f.Later, "%.1f", 100), f.LostN, f.GoodN, row.kindsLost(),
		show(f.Worse, "%.0f", 1), 1e3*f.Resolution, 1e3*f.Late)
	t.Printf("  by its own word noticed after %s s, first rule in force after %s s\n",
		show(f.Noticed, "%.3f", 1), show(f.Acted, "%.3f", 1))
	if len(f.Waves) > 1 {
		for _, p := range f.Waves {
			t.Printf("  %s: drop after %s s, %s %% dropped\n", p.What, show(p.Drop, "%.3f", 1),
				show(p.Dropped, "%.3f", 100))
		}
	}
	for _, i := range f.Incidents {
		t.Printf("  %s: %s\n", i.ID, i.Sentence)
		for k, s := range i.Steps {
			if k > 0 {
				b := i.Steps[k-1]
				t.Printf("    %.3f s, %s: took %.0f ms, of which it had %.0f ms of a core\n",
					s.At.Sub(row.began).Seconds(), s.What, s.At.Sub(b.At).Seconds()*1e3,
					(s.Core-b.Core)*1e3)
				continue
			}
			t.Printf("    %.3f s, %s\n", s.At.Sub(row.began).Seconds(), s.What)
		}
		for _, rule := range i.Rules {
			t.Printf("    %s (%s, %d packets, coverage %.3f, collateral %.5f at most %.5f)\n",
				rule.Rule, rule.State, rule.Packets, rule.Coverage, rule.Collateral, rule.AtMost)
		}
	}
	for _, m := range f.Missed {
		t.Printf("  missed: %s\n", m)
	}
}

// kindsLost says of which kind the packets of clients were that did not arrive, with those that
// found the ring full.
func (row *Row) kindsLost() string {
	var words []string
	for k := range row.last.missing {
		if n := row.end.missing[k] - row.first.missing[k]; n > 1 {
			words = append(words, fmt.Sprintf("%d %v", n, tally.Kind(k)))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return " (with those that found the ring full: " + strings.Join(words, ", ") + ")"
}

// Complete tells whether each flood has figures, whatever they are.
func (r *Report) Complete() bool {
	if r.Incomplete != "" {
		return false
	}
	for _, row := range r.Rows {
		if row.Missing != "" {
			return false
		}
	}
	return true
}

// bucket is the time over which samples are gathered in a curve.
const bucket = 250 * time.Millisecond

// Document returns the report to be drawn: the floods by time, and all figures.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("detect", "From a flood to a rule",
		fmt.Sprintf("Floods of %s packets/s against a host with good clients: how soon XDP drops "+
			"them, what it costs the clients, and how soon the rules are gone.", demo.SI(r.Rate)))
	d.Set("flood", demo.SI(r.Rate)+" packets/s")
	d.Set("during", r.During.String())
	d.Set("policy", r.Policy)
	number := func(f figure, scale float64) report.Cell {
		if !f.is() || math.IsInf(float64(f), 0) {
			return report.Text(show(f, "", 1))
		}
		return report.Number(scale * float64(f))
	}
	t := d.Table("floods", "From a flood to a rule", report.Column{Name: "flood"},
		report.Column{Name: "to the drop", Unit: "s"}, report.Column{Name: "dropped", Unit: "%"},
		report.Column{Name: "of the line", Unit: "%"},
		report.Column{Name: "clients' packets lost", Unit: "%"},
		report.Column{Name: "ring full", Unit: "%"}, report.Column{Name: "answered", Unit: "%"},
		report.Column{Name: "rules gone after", Unit: "s"},
		report.Column{Name: "collateral predicted", Unit: "%"},
		report.Column{Name: "collateral measured", Unit: "%"},
		report.Column{Name: "of a core", Unit: "%"}, report.Column{Name: "memory", Unit: "bytes"},
		report.Column{Name: "goals missed"})
	if c := r.Rest; c != nil {
		dash := report.Text("-")
		t.Row(report.Text("none"), dash, dash, dash, dash, dash, dash, dash, dash, dash,
			report.Number(100*c.Core), report.Number(float64(c.Memory)),
			report.Text(strings.TrimPrefix(restMissed(c), " ! ")))
	}
	said := d.Table("incidents", "What was said and done", report.Column{Name: "flood"},
		report.Column{Name: "incident"}, report.Column{Name: "rule"},
		report.Column{Name: "packets"}, report.Column{Name: "coverage"},
		report.Column{Name: "collateral"})
	for _, row := range r.Rows {
		f := row.figures(r.Rate)
		if f.Missing != "" {
			d.Refuse(f.Flood+" flood", f.Missing)
			continue
		}
		t.Row(report.Text(f.Flood), number(f.Drop, 1), number(f.Dropped, 100),
			number(f.Wasted, 100), number(f.Lost, 100), number(f.Refused, 100),
			number(f.Answered, 100), number(f.Gone, 1), number(f.Predicted, 100),
			number(f.Measured, 100), report.Number(100*f.Cost.Core),
			report.Number(float64(f.Cost.Memory)), report.Text(strings.Join(f.Missed, "; ")))
		for _, i := range f.Incidents {
			for _, rule := range i.Rules {
				said.Row(report.Text(f.Flood), report.Text(i.Sentence), report.Text(rule.Rule),
					report.Number(float64(rule.Packets)), report.Number(rule.Coverage),
					report.Number(rule.Collateral))
			}
		}
		row.curves(d)
	}
	return d
}

// curves draws a flood by time, a point for each bucket.
func (row *Row) curves(d *report.Document) {
	if len(row.samples) == 0 {
		return
	}
	start := row.samples[0].at
	var marks []report.Mark
	for _, v := range row.Waves {
		if row.ramp {
			break
		}
		marks = append(marks, report.Mark{From: (v.from - start).Seconds(),
			To: (v.to - start).Seconds(), Label: v.What})
	}
	c := d.Chart(report.Chart{
		ID: report.FileName(row.Flood), Title: row.Flood + ": " + row.What, Kind: report.Time,
		X: report.Axis{Label: "time", Unit: "s"},
		Y: report.Axis{Label: "packets", Unit: "packets/s"}, Marks: marks,
	})
	last := row.samples[0]
	for _, s := range row.samples[1:] {
		if s.at-last.at < bucket {
			continue
		}
		span, x := (s.at - last.at).Seconds(), ((s.at+last.at)/2 - start).Seconds()
		for _, v := range []struct {
			name     string
			now, was uint64
		}{
			{"of the flood, taken", s.flood(), last.flood()},
			{"of the flood, passed", s.passed, last.passed},
			{"of clients, passed", s.arrived, last.arrived},
		} {
			c.Add(v.name, report.Value(x, float64(v.now-min(v.was, v.now))/span))
		}
		last = s
	}
}
