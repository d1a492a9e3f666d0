package report

import (
	"fmt"
	"slices"
	"strings"
)

// Beside lays runs of one measurement beside each other: each chart and table that a run has, with
// those of the others. titles are the runs', in their order, and differ. The error matches
// errIncomparable where the runs are of several measurements.
func Beside(runs []*Document, titles []string) (*Document, error) {
	first := runs[0]
	d := &Document{Bench: first.Bench, Title: fmt.Sprintf("%s: %d runs", first.Title, len(runs)),
		What: first.What, Started: first.Started, Machine: first.Machine, Version: first.Version}
	for i, r := range runs {
		if r.Bench != first.Bench {
			return nil, fmt.Errorf("%w: one is of `levee bench %s`, the other of `levee bench %s`",
				errIncomparable, printable(first.Bench), printable(r.Bench))
		}
		r.settle()
		if r.Incomplete != "" {
			d.Incomplete = strings.TrimPrefix(fmt.Sprintf("%s; %s: %s", d.Incomplete, titles[i],
				r.Incomplete), "; ")
		}
		for _, n := range r.Notes {
			if !slices.Contains(d.Notes, n) {
				d.Notes = append(d.Notes, n)
			}
		}
		for _, x := range r.Refusals {
			d.Refuse(x.What+", "+titles[i], x.Why)
		}
	}
	d.tellRuns(runs, titles)
	for i, r := range runs {
		for _, c := range r.Charts {
			d.besideChart(c.ID, runs[i:], titles[i:])
		}
		for _, t := range r.Tables {
			d.besideTable(t, titles[i])
		}
	}
	return d, d.check()
}

// tellRuns lists what runs have in common, and in a table in what they differ.
func (d *Document) tellRuns(runs []*Document, titles []string) {
	t := d.Table("runs", "The runs", Column{Name: "run"}, Column{Name: "begun"},
		Column{Name: "command"}, Column{Name: "levee"}, Column{Name: "machine"})
	for i, r := range runs {
		t.Row(Text(titles[i]), Text(r.Started.UTC().Format("2006-01-02 15:04:05")),
			Text(r.Command), Text(r.Version), Text(r.Machine.String()))
	}
	var names []string
	of := make([]map[string]string, len(runs))
	for i, r := range runs {
		of[i] = settings(r.Setup, runs[0].Setup)
		for _, s := range r.Setup {
			if !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	for _, name := range names {
		value := of[0][name]
		if !slices.ContainsFunc(of, func(s map[string]string) bool { return s[name] != value }) {
			d.Set(name, value)
			continue
		}
		t.Columns = append(t.Columns, Column{Name: name})
		for i := range runs {
			t.Rows[i] = append(t.Rows[i], Text(orNone(of[i][name])))
		}
	}
}

// besideChart makes of the charts of that id one, if there is none yet. A chart that is drawn in
// another way than the first cannot be laid beside it.
func (d *Document) besideChart(id string, runs []*Document, titles []string) {
	if slices.ContainsFunc(d.Charts, func(c *Chart) bool { return c.ID == id }) {
		return
	}
	var all []*Chart // of each run, nil of one that has none
	var to *Chart
	var labels []string
	known := map[string]bool{}
	for i, r := range runs {
		all = append(all, nil)
		at := slices.IndexFunc(r.Charts, func(c *Chart) bool { return c.ID == id })
		if at < 0 {
			continue
		}
		c := r.Charts[at]
		if to == nil {
			laid := *c
			laid.Series, laid.Ranked, laid.Steady = nil, false, 0
			to = d.Chart(laid)
		}
		if to.Kind != c.Kind || to.X.Unit != c.X.Unit || to.Y.Unit != c.Y.Unit {
			d.Refuse(c.Title+", "+titles[i], "its chart is of another kind than in the run before")
			continue
		}
		all[i] = c
		for _, l := range c.labels() {
			if !known[l] {
				known[l], labels = true, append(labels, l)
			}
		}
	}
	if !to.Kind.labelled() {
		for i, c := range all {
			if c != nil {
				for _, s := range c.Series {
					to.Add(s.Name+", "+titles[i], s.Points...)
				}
			}
		}
		return
	}
	bars := make([]map[string][]labelled, len(all))
	for i, c := range all {
		if c != nil {
			bars[i] = c.bars()
		}
	}
	for _, l := range labels { // the same thing of all runs stands together
		for i := range all {
			for _, b := range bars[i][l] {
				b.Label += ", " + titles[i]
				to.Add(b.series, b.Point)
			}
		}
	}
}

// labelled is a point with the series that it is of.
type labelled struct {
	series string
	Point
}

// bars returns the bars of a chart by their labels, each in the order of the series.
func (c *Chart) bars() map[string][]labelled {
	out := map[string][]labelled{}
	for _, s := range c.Series {
		for _, p := range s.Points {
			out[p.Label] = append(out[p.Label], labelled{s.Name, p})
		}
	}
	return out
}

// besideTable adds the rows of a run's table to the one with its id and columns.
func (d *Document) besideTable(t *Table, title string) {
	columns := append([]Column{{Name: "run"}}, t.Columns...)
	id := t.ID
	for n := 2; ; n++ {
		at := slices.IndexFunc(d.Tables, func(o *Table) bool { return o.ID == id })
		if at < 0 {
			to := d.Table(id, t.Title, columns...)
			to.What = t.What
			continue
		}
		if to := d.Tables[at]; slices.Equal(to.Columns, columns) {
			for _, row := range t.Rows {
				to.Row(append([]Cell{Text(title)}, row...)...)
			}
			return
		}
		id = fmt.Sprintf("%s-%d", t.ID, n)
	}
}
