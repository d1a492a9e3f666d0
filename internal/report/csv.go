package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// csvColumns are those of CSV; new ones are added behind them.
var csvColumns = []string{
	"chart", "series", "label", "x", "x_to", "x_unit", "y", "y_unit", "low", "high", "bound",
	"valid", "why", "outlier", "round", "p5", "p25", "p75", "p95",
}

// CSV writes one line a figure: the median of each point, with round empty, then each of its rounds
// by its number from 1. What is not known is empty, with why saying why; bound is "", "at least",
// "at most" or "unknown".
func (d *Document) CSV(w io.Writer) error {
	d.settle()
	if err := d.check(); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	out := csv.NewWriter(w)
	if err := out.Write(csvColumns); err != nil {
		return err
	}
	for _, c := range d.Charts {
		for _, s := range c.Series {
			for i := range s.Points {
				if err := writePoint(out, c, s, &s.Points[i]); err != nil {
					return err
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}

func writePoint(out *csv.Writer, c *Chart, s *Series, p *Point) error {
	x := number(&p.X)
	if c.Kind.labelled() {
		x = ""
	}
	line := func(y *float64, low, high *float64, bound string, outlier bool, round string,
		spread ...string) error {
		return out.Write(append([]string{
			c.ID, words(s.Name), words(p.Label), x, number(p.XTo), c.X.Unit, number(y), c.Y.Unit,
			number(low), number(high),
			bound, strconv.FormatBool(!p.Invalid), words(p.Why), strconv.FormatBool(outlier), round,
		}, spread...))
	}
	none := make([]string, 4)
	spread := none
	if s := p.Spread; s != nil {
		spread = []string{number(&s.P5), number(&s.P25), number(&s.P75), number(&s.P95)}
	}
	if err := line(p.Y, p.Low, p.High, p.bound(), p.Outlier, "", spread...); err != nil {
		return err
	}
	far := Outliers(p.Rounds)
	for i := range p.Rounds {
		if err := line(&p.Rounds[i], nil, nil, "", far[i], strconv.Itoa(i+1), none...); err != nil {
			return err
		}
	}
	return nil
}

// bound returns what is known of the true value.
func (p *Point) bound() string {
	switch {
	case p.AtLeast && p.AtMost:
		return "unknown"
	case p.AtLeast:
		return "at least"
	case p.AtMost:
		return "at most"
	}
	return ""
}

func number(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'g', -1, 64)
}

// words keeps a spreadsheet from taking a name for a formula: names come from files and other
// programs.
func words(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
