package report

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/quantity"
)

// maxHeadlines is the number of series of bars that get a sentence of their own.
const maxHeadlines = 4

// rival is a figure that stands beside others for the same thing.
type rival struct {
	name string
	*Point
}

// Headline says in a few sentences which is first, by how much, and where levee stands. It calls
// first only what Compare would call really different, by the same tests. It speaks of the first
// chart whose order is a result, else of the first that says which direction is good.
func (d *Document) Headline() []string {
	d.settle()
	c := d.headlineChart()
	if c == nil {
		return []string{"No winner is named: no chart here says which figures are good, or there " +
			"is only one to look at."}
	}
	var out []string
	for _, race := range c.races() {
		s := c.verdict(race.rivals)
		if race.where != "" {
			s = race.where + ": " + s
		}
		out = append(out, s)
	}
	return out
}

// headlineChart returns nil where nothing can be first. A time series has no figures to test.
func (d *Document) headlineChart() *Chart {
	var first *Chart
	for _, c := range d.Charts {
		if c.Better == "" || !c.Kind.paired() || len(c.races()) == 0 {
			continue
		}
		if c.Ranked {
			return c
		}
		if first == nil {
			first = c
		}
	}
	return first
}

// race is one place where rivals meet.
type race struct {
	where  string
	rivals []rival
}

// races returns the series of bars one by one; of lines, the place furthest out where most of them
// have a figure.
func (c *Chart) races() []race {
	if c.Kind == Bar {
		var out []race
		for _, s := range c.Series[:min(len(c.Series), maxHeadlines)] {
			r := race{}
			if len(c.Series) > 1 {
				r.where = printable(s.Name)
			}
			for i := range s.Points {
				if p := &s.Points[i]; p.Y != nil && !p.Invalid {
					r.rivals = append(r.rivals, rival{printable(p.Label), p})
				}
			}
			if len(r.rivals) > 1 {
				out = append(out, r)
			}
		}
		return out
	}
	at := map[float64][]rival{}
	for _, s := range c.Series {
		for i := range s.Points {
			if p := &s.Points[i]; p.Y != nil && !p.Invalid {
				at[p.X] = append(at[p.X], rival{printable(s.Name), p})
			}
		}
	}
	var best []rival
	for x, list := range at {
		if len(best) == 0 || len(list) > len(best) || len(list) == len(best) && x > best[0].X {
			best = list
		}
	}
	if len(best) < 2 {
		return nil
	}
	where := strings.TrimSpace(printable(c.X.Label) + " " +
		quantity.Print(best[0].X, printable(c.X.Unit)))
	return []race{{where, best}}
}

// verdict compares the best figure with each of the others.
func (c *Chart) verdict(rivals []rival) string {
	rivals = slices.Clone(rivals)
	slices.SortStableFunc(rivals, func(a, b rival) int {
		if c.Better == More {
			a, b = b, a
		}
		switch {
		case *a.Y < *b.Y:
			return -1
		case *a.Y > *b.Y:
			return 1
		}
		return 0
	})
	first, others := rivals[0], rivals[1:]
	all := Comparison{}
	for _, r := range others {
		all.Differences = append(all.Differences, newDifference(c, r.name, first.Point, r.Point))
	}
	all.correct()
	var level []string
	next, ours := -1, -1
	for i, r := range others {
		d := &all.Differences[i]
		d.judge(Options{}.orDefaults())
		if d.Verdict == Worse {
			if next < 0 {
				next = i
			}
		} else {
			level = append(level, r.name)
		}
		if ours < 0 && isLevee(r.name) {
			ours = i
		}
	}
	title := printable(c.Title)
	if next < 0 {
		return fmt.Sprintf("no winner can be named in “%s”: the data do not tell the best figure, "+
			"that of %s (%s), from any other.", title, first.name, first.text(c))
	}
	var b strings.Builder
	if len(level) == 0 {
		fmt.Fprintf(&b, "%s is first in “%s” with %s.", first.name, title, first.text(c))
	} else {
		fmt.Fprintf(&b, "%s has the best figure in “%s”, %s, but the data do not tell it from "+
			"%s.", first.name, title, first.text(c), names(level))
	}
	fmt.Fprintf(&b, " %s.", c.by(first, others[next]))
	if ours >= 0 && ours != next && all.Differences[ours].Verdict == Worse && !isLevee(first.name) {
		fmt.Fprintf(&b, " %s: %s.", c.by(first, others[ours]), others[ours].text(c))
	}
	return b.String()
}

// names lists what is level with the first; many are counted.
func names(list []string) string {
	const most = 4
	if len(list) > most {
		return fmt.Sprintf("%d others", len(list))
	}
	if n := len(list); n > 1 {
		return strings.Join(list[:n-1], ", ") + " and " + list[n-1]
	}
	return list[0]
}

// text returns the figure of a rival with its interval.
func (r *rival) text(c *Chart) string {
	unit := printable(c.Y.Unit)
	out := strings.TrimSpace(r.bound() + " " + quantity.Print(quantity.Round(*r.Y, 3), unit))
	if r.Low != nil {
		out += fmt.Sprintf(" (95 %% interval %s to %s)",
			quantity.Print(quantity.Round(*r.Low, 3), unit),
			quantity.Print(quantity.Round(*r.High, 3), unit))
	}
	return out
}

// by says how many times as high one figure is as the other, with all that both intervals allow.
func (c *Chart) by(first, other rival) string {
	high, low, before, after := first, other, "It is ", " times as high as that of "+other.name
	if c.Better == Less {
		high, low, before, after = other, first, "That of "+other.name+" is ", " times as high"
	}
	if *low.Y <= 0 {
		return "That of " + other.name + " is " + quantity.Print(quantity.Round(*other.Y, 3),
			printable(c.Y.Unit))
	}
	ratio := fmt.Sprintf("%.3g", *high.Y / *low.Y)
	if first.bound() != "" || other.bound() != "" {
		// what judge tells apart in spite of a bound is further apart
		return before + "at least " + ratio + after
	}
	if high.Low != nil && low.Low != nil && *low.Low > 0 {
		ratio += fmt.Sprintf(" (%.3g to %.3g)", *high.Low / *low.High, *high.High / *low.Low)
	}
	return before + ratio + after
}

// isLevee tells levee's own figures from those of others by their name.
func isLevee(name string) bool {
	rest, ok := strings.CutPrefix(name, "levee")
	return ok && (rest == "" || rest[0] == ' ' || rest[0] == ',' || rest[0] == ':' ||
		rest[0] == '(')
}

// signed puts a sign before what is levee's, for those who do not see it by its colour.
func signed(name string) string {
	if isLevee(name) {
		return "\u25ba " + name
	}
	return name
}
