package report

import (
	"errors"
	"io"
	"slices"
	"testing"
)

// TestRunsLieBesideEachOther: bars of the same thing stand together, lines keep their sign, tables
// say of which run a row is, and settings in which runs differ stand in a table.
func TestRunsLieBesideEachOther(t *testing.T) {
	a, b, c := sample(), sample(), sample()
	b.Setup[0].Value = "mine.levee"
	b.Incomplete = "interrupted"
	c.Charts = c.Charts[1:]
	d, err := Beside([]*Document{a, b, c}, []string{"one", "two", "three"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.HTML(io.Discard), d.CSV(io.Discard)); err != nil {
		t.Error(err)
	}
	for _, chart := range d.Charts {
		if _, err := d.SVG(chart); err != nil {
			t.Errorf("%s: %v", chart.ID, err)
		}
	}
	if got := d.Charts[0].labels()[:4]; !slices.Equal(got, []string{"xdp native, one",
		"xdp native, two", "levee, one", "levee, two"}) {
		t.Errorf("labels are %q", got)
	}
	if n := len(d.Charts[0].Series); n != 2 {
		t.Errorf("%d series of bars: a bar for each family", n)
	}
	var names []string
	for _, s := range d.Charts[1].Series {
		names = append(names, s.Name)
	}
	if !slices.Contains(names, "levee static, three") || len(names) != 12 {
		t.Errorf("series are %q", names)
	}
	runs := d.Tables[0]
	last := len(runs.Columns) - 1
	if runs.Columns[last].Name != "policy" || runs.Rows[1][last].Text != "mine.levee" ||
		d.Setup[0].Name != "window" {
		t.Errorf("runs are %v, %v; all have %v", runs.Columns, runs.Rows, d.Setup)
	}
	if rows := d.Tables[1].Rows; len(rows) != 9 || rows[3][0].Text != "two" {
		t.Errorf("rows are %v", rows)
	}
	if d.Incomplete != "two: interrupted" {
		t.Errorf("incomplete is %q", d.Incomplete)
	}
	c.Bench = "other"
	if _, err := Beside([]*Document{a, c}, []string{"a", "c"}); !errors.Is(err, errIncomparable) {
		t.Errorf("runs of two measurements: %v", err)
	}
}

// TestATableOfAnotherShapeIsKept, as runs of two versions may have.
func TestATableOfAnotherShapeIsKept(t *testing.T) {
	a, b := sample(), sample()
	b.Tables[0].Columns = append(b.Tables[0].Columns, Column{Name: "more"})
	for i := range b.Tables[0].Rows {
		b.Tables[0].Rows[i] = append(b.Tables[0].Rows[i], Text("x"))
	}
	b.Charts[0].Kind = Line
	d, err := Beside([]*Document{a, b}, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Tables) != 3 || d.Tables[2].ID != "certificate-2" || len(d.Tables[2].Rows) != 3 {
		t.Errorf("tables are %d: %v", len(d.Tables), d.Tables[len(d.Tables)-1])
	}
	if len(d.Refusals) != 3 {
		t.Errorf("a chart of another kind is not told: %v", d.Refusals)
	}
}
