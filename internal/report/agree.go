package report

import (
	"fmt"
	"math"
	"strings"
)

// maxRanked is the number of points of a series that are put into an order: pairs are its square.
const maxRanked = 500

// Order says whether two reports agree in the order of a chart whose order is a result
// (Chart.Ranked). A report tells two figures of a series apart if their intervals do not overlap.
type Order struct {
	Chart string `json:"chart"` // its id
	Pairs int    `json:"pairs"` // of figures of one series that both reports have
	Told  int    `json:"told"`  // of these, that both reports tell apart
	// of these, the ones that are the other way round in the second
	Opposite []string `json:"opposite"`
}

// Steadiness says which figures of a chart that asks for it (Chart.Steady) moved by more than its
// share.
type Steadiness struct {
	Chart   string  `json:"chart"` // its id
	Label   string  `json:"label"` // of its axis
	Within  float64 `json:"within"`
	Figures int     `json:"figures"` // that both reports have
	Moved   []Moved `json:"moved"`
}

// Moved is a figure that is not steady.
type Moved struct {
	Series string  `json:"series"`
	At     string  `json:"at"`
	First  float64 `json:"first"`
	Second float64 `json:"second"`
}

// agree compares orders and steadiness of the charts that both documents have; what is asked of a
// chart is what the first asks.
func (c *Comparison) agree(a, b *Document) {
	for _, chart := range a.Charts {
		other := chartOf(b, chart.ID)
		if other == nil {
			continue
		}
		if chart.Ranked {
			c.Orders = append(c.Orders, c.order(chart, other))
		}
		if chart.Steady > 0 {
			c.Steadiness = append(c.Steadiness, steadiness(chart, other))
		}
	}
}

func chartOf(d *Document, id string) *Chart {
	for _, c := range d.Charts {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// both calls f for each figure that two charts have, series by series.
func both(a, b *Chart, f func(series string, p, q *Point)) {
	second := map[coordinates]*Point{}
	for _, s := range b.Series {
		for i := range s.Points {
			second[key(b, s, &s.Points[i])] = &s.Points[i]
		}
	}
	for _, s := range a.Series {
		for i := range s.Points {
			p := &s.Points[i]
			if q := second[key(a, s, p)]; q != nil && p.Y != nil && q.Y != nil && !p.Invalid &&
				!q.Invalid {
				f(s.Name, p, q)
			}
		}
	}
}

func (c *Comparison) order(a, b *Chart) Order {
	o := Order{Chart: a.ID, Opposite: []string{}}
	type pair struct{ p, q *Point }
	var names []string
	series := map[string][]pair{}
	both(a, b, func(name string, p, q *Point) {
		if series[name] == nil {
			names = append(names, name)
		}
		series[name] = append(series[name], pair{p, q})
	})
	for _, name := range names {
		all := series[name]
		if len(all) > maxRanked {
			c.Notes = append(c.Notes, fmt.Sprintf("the order of %s, %s is not compared: %d "+
				"figures are too many (%d)", a.ID, name, len(all), maxRanked))
			continue
		}
		for i := range all {
			for j := range i {
				o.Pairs++
				first, second := told(all[i].p, all[j].p), told(all[i].q, all[j].q)
				if first == 0 || second == 0 {
					continue
				}
				o.Told++
				if first != second {
					o.Opposite = append(o.Opposite,
						fmt.Sprintf("%s: %s and %s", name, all[j].p.place(a), all[i].p.place(a)))
				}
			}
		}
	}
	return o
}

// told is -1 if p is certainly below q, 1 if above, 0 if nobody can tell. A bound says nothing of
// the side to which it is open.
func told(p, q *Point) int {
	switch {
	case p.Low == nil || q.Low == nil:
		return 0
	case *p.High < *q.Low && !p.AtLeast && !q.AtMost:
		return -1
	case *p.Low > *q.High && !p.AtMost && !q.AtLeast:
		return 1
	}
	return 0
}

func steadiness(a, b *Chart) Steadiness {
	s := Steadiness{Chart: a.ID, Label: a.Y.Label, Within: a.Steady, Moved: []Moved{}}
	both(a, b, func(series string, p, q *Point) {
		s.Figures++
		if math.Abs(*q.Y-*p.Y) > a.Steady*math.Abs(*p.Y) {
			s.Moved = append(s.Moved, Moved{series, p.place(a), *p.Y, *q.Y})
		}
	})
	return s
}

// agreement returns a line for each order and each chart that is to be steady.
func (c *Comparison) agreement() string {
	var b strings.Builder
	for _, o := range c.Orders {
		fmt.Fprintf(&b, "order in %s: ", printable(o.Chart))
		switch {
		case o.Told == 0:
			fmt.Fprintf(&b, "cannot be told, both reports tell none of %d pairs apart\n", o.Pairs)
		case len(o.Opposite) == 0:
			fmt.Fprintf(&b, "the same; both reports tell %d of %d pairs apart, none of these the "+
				"other way round\n", o.Told, o.Pairs)
		default:
			fmt.Fprintf(&b, "NOT the same; both reports tell %d of %d pairs apart, %d of these "+
				"the other way round: %s\n",
				o.Told, o.Pairs, len(o.Opposite), printable(strings.Join(o.Opposite, "; ")))
		}
	}
	for _, s := range c.Steadiness {
		fmt.Fprintf(&b, "%s: %d of %d figures moved by more than %g %%", printable(s.Chart),
			len(s.Moved), s.Figures, s.Within*100)
		for i, m := range s.Moved {
			fmt.Fprintf(&b, "%s %s %s %.3g -> %.3g%s", []string{":", ";"}[min(i, 1)],
				printable(m.Series), printable(m.At), m.First, m.Second, percent(m.First, m.Second))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// percent is by how much b differs from a; empty from zero.
func percent(a, b float64) string {
	if a == 0 {
		return ""
	}
	return fmt.Sprintf(" (%+.1f %%)", 100*(b/a-1))
}
