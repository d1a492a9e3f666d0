package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limits of a document. What levee writes is far below them; what it reads may come from anywhere.
const (
	maxCharts = 2000
	maxTables = 2000
	maxPoints = 1 << 20 // of all charts together, raw rounds included
	maxCells  = 1 << 20 // of all tables together
	maxID     = 120
)

// check says what is wrong with a document as one to draw or compare.
func (d *Document) check() error {
	if d.Bench == "" {
		return fmt.Errorf("it does not say which measurement it is (\"bench\" is empty)")
	}
	if len(d.Charts) > maxCharts || len(d.Tables) > maxTables {
		return fmt.Errorf("%d charts and %d tables are too many (%d each)", len(d.Charts),
			len(d.Tables), maxCharts)
	}
	seen := map[string]bool{}
	once := func(id string) error {
		if err := checkID(id); err != nil {
			return err
		}
		if seen[id] {
			return fmt.Errorf("two charts or tables have the id %q", id)
		}
		seen[id] = true
		return nil
	}
	points, cells := 0, 0
	for i, c := range d.Charts {
		if c == nil {
			return fmt.Errorf("chart %d is null", i)
		}
		if err := once(c.ID); err != nil {
			return err
		}
		n, err := c.check()
		if err != nil {
			return fmt.Errorf("chart %q: %w", c.ID, err)
		}
		if points += n; points > maxPoints {
			return fmt.Errorf("more than %d points", maxPoints)
		}
	}
	for i, t := range d.Tables {
		if t == nil {
			return fmt.Errorf("table %d is null", i)
		}
		if err := once(t.ID); err != nil {
			return err
		}
		for n, row := range t.Rows {
			if len(row) != len(t.Columns) {
				return fmt.Errorf("table %q: row %d has %d cells for %d columns", t.ID, n, len(row),
					len(t.Columns))
			}
			cells += len(row)
		}
		if cells > maxCells {
			return fmt.Errorf("more than %d cells", maxCells)
		}
	}
	return nil
}

// check also counts points and rounds.
func (c *Chart) check() (int, error) {
	switch c.Kind {
	case Line, Bar, Histogram, Time, Distribution, Box:
	default:
		return 0, fmt.Errorf("there is no kind %q", c.Kind)
	}
	switch c.Better {
	case "", More, Less:
	default:
		return 0, fmt.Errorf("better is %q, not %q or %q", c.Better, More, Less)
	}
	names, total := map[string]bool{}, 0
	for i, s := range c.Series {
		if s == nil {
			return 0, fmt.Errorf("series %d is null", i)
		}
		if names[s.Name] {
			return 0, fmt.Errorf("two series are called %q", s.Name)
		}
		names[s.Name] = true
		for j := range s.Points {
			p := &s.Points[j]
			total += 1 + len(p.Rounds)
			if c.Kind == Histogram && (p.XTo == nil || *p.XTo < p.X) {
				return 0, fmt.Errorf("series %q, point %d: a column needs an upper edge", s.Name, j)
			}
			if c.Kind.labelled() && p.Label == "" {
				return 0, fmt.Errorf("series %q, point %d: a bar needs a label", s.Name, j)
			}
			if (c.Kind == Box && p.Y != nil) != (p.Spread != nil) {
				return 0, fmt.Errorf("series %q, point %d: a box, and nothing else, has a spread",
					s.Name, j)
			}
			if p.Spread != nil && !p.Spread.ascends(*p.Y) {
				return 0, fmt.Errorf("series %q, point %d: the percentiles do not ascend", s.Name,
					j)
			}
			if p.Y == nil && p.Why == "" {
				return 0, fmt.Errorf("series %q, point %d: neither a figure nor the reason why not",
					s.Name, j)
			}
			if p.Low != nil && p.High != nil && *p.Low > *p.High {
				return 0, fmt.Errorf("series %q, point %d: the interval ends before it begins",
					s.Name, j)
			}
		}
	}
	return total, nil
}

// ascends tells whether percentiles around a median are in their order.
func (s *Spread) ascends(median float64) bool {
	return s.P5 <= s.P25 && s.P25 <= median && median <= s.P75 && s.P75 <= s.P95
}

// checkID: an id becomes the name of a file and of an anchor.
func checkID(id string) error {
	if id == "" || len(id) > maxID || id[0] == '.' || id[0] == '-' || FileName(id) != id {
		return fmt.Errorf("the id %q is not 1 to %d of a-z, 0-9, \"-\" and \".\", with a letter "+
			"or digit first", id, maxID)
	}
	return nil
}

// FileName makes an id of any text: other characters than a-z, 0-9, "-" and "." become hyphens.
func FileName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s)
}

// settle makes what measurements hand over fit for all writers: lists instead of null, and gaps in
// place of what is no number (JSON has none of these), so that a division by zero at the end of an
// hour does not cost the hour.
func (d *Document) settle() {
	d.Schema = Schema
	orEmpty(&d.Setup)
	orEmpty(&d.Notes)
	orEmpty(&d.Refusals)
	orEmpty(&d.Charts)
	orEmpty(&d.Tables)
	for _, c := range d.Charts {
		if c.Kind == "" {
			c.Kind = Line
		}
		orEmpty(&c.Series)
		c.Marks = slices.DeleteFunc(c.Marks,
			func(m Mark) bool { return !drawable(m.From) || !drawable(m.To) })
		for _, s := range c.Series {
			orEmpty(&s.Points)
			for i := range s.Points {
				s.Points[i].settle()
			}
		}
	}
	for _, t := range d.Tables {
		orEmpty(&t.Columns)
		orEmpty(&t.Rows)
		for _, row := range t.Rows {
			for i := range row {
				if v := row[i].Value; v != nil && !finite(*v) {
					row[i].Value = nil
				}
			}
		}
	}
}

func (p *Point) settle() {
	if !drawable(p.X) || p.XTo != nil && !drawable(*p.XTo) {
		p.X, p.Y = 0, nil
		p.Why = "the figure has no place on the axis"
		if p.XTo != nil {
			*p.XTo = 0
		}
	}
	if p.Y != nil && !drawable(*p.Y) {
		p.Why = fmt.Sprintf("the measurement gave %v", *p.Y)
		p.Y = nil
	}
	if s := p.Spread; p.Y != nil && s != nil && slices.ContainsFunc(
		[]float64{s.P5, s.P25, s.P75, s.P95}, func(v float64) bool { return !drawable(v) }) {
		p.Y, p.Why = nil, "a percentile has no place on the axis"
	}
	if p.Y == nil {
		p.Low, p.High, p.Spread, p.Invalid = nil, nil, nil, true
		if p.Why == "" {
			p.Why = "not measured"
		}
	}
	if p.Low == nil || p.High == nil || !drawable(*p.Low) || !drawable(*p.High) {
		p.Low, p.High = nil, nil
	}
	if slices.ContainsFunc(p.Rounds, func(v float64) bool { return !drawable(v) }) {
		p.Rounds = nil
	}
}

// drawable reports whether an axis can hold a value, with room for any unit: sixty powers of ten.
// An axis over more would have no end of ticks.
func drawable(v float64) bool {
	size := math.Abs(v)
	return v == 0 || size >= 1e-30 && size <= 1e30 // false for what is no number
}

func orEmpty[T any](list *[]T) {
	if *list == nil {
		*list = []T{}
	}
}
