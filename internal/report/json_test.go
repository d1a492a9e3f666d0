package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDocumentsAreReadBack(t *testing.T) {
	type own struct {
		Rungs []string `json:"rungs"`
	}
	for what, raw := range map[string]any{"alone": nil,
		"with fields of its own": own{[]string{"a<b"}}, "with none": struct{}{}} {
		d := sample()
		var b bytes.Buffer
		if err := d.JSON(&b, raw); err != nil {
			t.Fatal(err)
		}
		if what == "with fields of its own" && !strings.Contains(b.String(), `"a<b"`) {
			t.Errorf("the measurement's own fields are not there: %.80s", b.String())
		}
		got, err := Read(&b, "a.json")
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if diff := cmp.Diff(d, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	if err := sample().JSON(&bytes.Buffer{}, map[string]int{"document": 1}); err == nil {
		t.Error("a report with a document of its own is taken")
	}
	if err := sample().JSON(&bytes.Buffer{}, 7); err == nil {
		t.Error("a number is taken for a report")
	}
}

func TestFilesThatAreNoReportsSaySo(t *testing.T) {
	var whole bytes.Buffer
	if err := sample().JSON(&whole, nil); err != nil {
		t.Fatal(err)
	}
	change := func(old, with string) string {
		if !strings.Contains(whole.String(), old) {
			t.Fatalf("the sample has no %s", old)
		}
		return strings.Replace(whole.String(), old, with, 1)
	}
	for _, c := range []struct{ what, text, want string }{
		{"empty", "", "it is empty"},
		{"cut off", whole.String()[:whole.Len()/2], "it is cut off after"},
		{"two reports in one", whole.String() + whole.String(), "it is not JSON"},
		{"not JSON", "rung Mpps", "it is not JSON: invalid character 'r'"},
		{"a list", "[1]", "no report"},
		{"another program's", `{"rungs": []}`, `it has no "schema"`},
		{"null", `{"document": null}`, `it has no "schema"`},
		{"a later schema", change(Schema, "levee.report/2"),
			"read it with the levee that made it, or a newer one"},
		{"another schema", change(Schema, "x"), `its schema is "x"`},
		{"a word for a number", change(`"cores": 2`, `"cores": "two"`),
			`"machine.cores" is of the JSON type string`},
		{"no bench", change(`"bench": "sample"`, `"bench": ""`), "which measurement"},
		{"a path for an id", change(`"id": "ladder-pps"`, `"id": "../../etc/passwd"`),
			"is not 1 to 120 of"},
		{"the same id twice", change(`"id": "ladder-pps"`, `"id": "latency"`),
			"two charts or tables"},
		{"an unknown kind", change(`"kind": "bar"`, `"kind": "pie"`), `there is no kind "pie"`},
		{"an unknown direction", change(`"better": "more"`, `"better": "blue"`),
			`better is "blue"`},
		{"the same series twice", change(`"name": "IPv4"`, `"name": "IPv6"`), "two series"},
		{"a bar without a label", change(`"label": "xdp native",`, ``), "a bar needs a label"},
		{"a null chart", change(`"charts": [`, `"charts": [null,`), "chart 0 is null"},
		{"a short row", change(`"columns": [`, `"columns": [{"name":"more"},`), "cells for"},
	} {
		_, err := Read(strings.NewReader(c.text), "a.json")
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "a.json ") {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

func TestWhatIsNoNumberBecomesAGap(t *testing.T) {
	d := &Document{Bench: "odd"}
	c := d.Chart(Chart{ID: "c"})
	c.Add("a", Value(1, math.NaN()), Value(2, math.Inf(1)), Value(math.NaN(), 1), Point{X: 4},
		Measured(5, []float64{1, math.NaN(), 2, 3, 4, 5}))
	d.Table("t", "t", Column{Name: "n"}).Row(Number(math.NaN()))
	var b bytes.Buffer
	if err := d.JSON(&b, nil); err != nil {
		t.Fatal(err)
	}
	for i, p := range d.Charts[0].Series[0].Points[:4] {
		if p.Y != nil || p.Why == "" {
			t.Errorf("point %d is %+v, want a gap with its reason", i, p)
		}
	}
	if !json.Valid(b.Bytes()) || strings.Contains(b.String(), `"NaN`) {
		t.Errorf("JSON is %s", b.String())
	}
}

func TestCSVHasALineForEachFigure(t *testing.T) {
	d := sample()
	d.Charts[0].Add("=cmd|' /C calc'!A0", Value(0, 1).Of("with \"quotes\", commas"))
	var b bytes.Buffer
	if err := d.CSV(&b); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := 1
	for _, c := range d.Charts {
		for _, s := range c.Series {
			for _, p := range s.Points {
				want += 1 + len(p.Rounds)
			}
		}
	}
	if len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
	var gap, formula, outlier bool
	for _, l := range lines[1:] {
		gap = gap || l[2] == "socket filter" && l[6] == "" && l[11] == "false" &&
			strings.HasPrefix(l[12], "packets do not balance")
		formula = formula || l[1] == "'=cmd|' /C calc'!A0"
		outlier = outlier || l[13] == "true" && l[14] == "5"
	}
	if !gap || !formula || !outlier {
		t.Errorf("a gap with its reason %v, a name that is no formula %v, an outlier %v: want all",
			gap, formula, outlier)
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := sample().JSON(&b, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(
		`{"schema":"levee.report/1","bench":"x","charts":[{"id":"a","kind":"histogram","series":[{"points":[{"x":1,"x_to":2,"y":3}]}]}]}`))
	f.Add([]byte(
		`{"schema":"levee.report/1","bench":"x","charts":[{"id":"a","kind":"line","y":{"log":true},"series":[{"points":[{"y":1e-300},{"x":1e300,"y":1e300}]}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Read(bytes.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		if _, err := Compare(d, d, Options{}); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if d.HTML(&out) != nil || d.CSV(&out) != nil || d.JSON(&out, nil) != nil {
			t.Fatal("what can be read cannot be written")
		}
		for _, c := range d.Charts {
			if c.Drawable() {
				if _, err := d.SVG(c); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
