package report

import (
	"time"

	"levee/internal/host"
)

// Schema names the layout of a Document as JSON (docs/reference/report.md). Fields are added
// without a new version; one that goes or changes its meaning makes a new one.
const Schema = "levee.report/1"

// Document is a measurement, ready to be shown.
type Document struct {
	Schema string `json:"schema"` // Schema; set by whoever writes it
	// which measurement, as in `levee bench NAME`; only equal ones are compared
	Bench   string `json:"bench"`
	Title   string `json:"title"`   // a few words
	What    string `json:"what"`    // what was measured, and how, in a few sentences
	Command string `json:"command"` // to repeat it
	// Run is the name of this run where it stands beside others; empty: that of its file.
	Run     string    `json:"run,omitempty"`
	Version string    `json:"version"` // of levee; set by the command
	Started time.Time `json:"started"`
	// Incomplete says why the measurement ended early; empty if it did not.
	Incomplete string `json:"incomplete,omitempty"`
	// Setup lists the settings that two comparable runs share: policy, seed, windows, rounds.
	Setup    []Setting `json:"setup"`
	Machine  host.Info `json:"machine"`
	Notes    []string  `json:"notes"`    // caveats
	Refusals []Refusal `json:"refusals"` // what has no figure
	Charts   []*Chart  `json:"charts"`
	Tables   []*Table  `json:"tables"`
}

// Setting is one choice that figures depend on.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Within, if above 1, is for a number that was measured: the factor by which two of them
	// may differ.
	Within float64 `json:"within,omitempty"`
}

// Refusal is a figure that is not given, and why.
type Refusal struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Kind is the form of a chart.
type Kind string

const (
	// Line joins the points of each series in the order of X; the default.
	Line Kind = "line"
	// Bar draws a bar for each Label, side by side for several series. X is not used.
	Bar Kind = "bar"
	// Histogram draws a column from X to XTo as high as Y.
	Histogram Kind = "histogram"
	// Time is a Line over seconds since the start, with marked spans.
	Time Kind = "time"
	// Distribution is a Line of shares up to which values lie: two have no points in common.
	Distribution Kind = "distribution"
	// Box draws, for each Label as Bar does, the spread of many values: Y, their median, within
	// the point's Spread.
	Box Kind = "box"
)

// paired tells whether points of two runs are of the same thing: others show many values at once.
func (k Kind) paired() bool { return k == Line || k == Bar }

// labelled tells whether points have a place by their Label.
func (k Kind) labelled() bool { return k == Bar || k == Box }

// Better is the direction in which a chart's values are good. `levee bench compare` calls nothing
// worse in a chart that has none.
type Better string

const (
	More Better = "more"
	Less Better = "less"
)

// Chart is one picture.
type Chart struct {
	// unique in the document, also the name of its files: a-z, 0-9, "-", "."
	ID     string `json:"id"`
	Title  string `json:"title"`
	What   string `json:"what,omitempty"` // how to read it
	Kind   Kind   `json:"kind"`
	X      Axis   `json:"x"`
	Y      Axis   `json:"y"`
	Better Better `json:"better,omitempty"` // of Y
	// Ranked: the order of Y is a result, and `levee bench compare` says whether two reports
	// agree in it.
	Ranked bool `json:"ranked,omitempty"`
	// Steady, if above 0, is by which share of itself Y may differ in two reports: more is
	// counted and named.
	Steady float64   `json:"steady,omitempty"`
	Series []*Series `json:"series"`
	Marks  []Mark    `json:"marks,omitempty"`
}

// Axis names what is drawn along it.
type Axis struct {
	Label string `json:"label"`
	// Unit is in words or symbols as people write them behind a number: "ns", "packets/s",
	// "bytes", "%", or empty for a count. ns, us, ms and s are scaled to one another, others
	// get K, M, G.
	Unit string `json:"unit,omitempty"`
	Log  bool   `json:"log,omitempty"` // logarithmic at first; the page can switch
}

// Mark is a span of X that means something, as the time of a flood; or a line, if To is From.
type Mark struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Label string  `json:"label"`
}

// Series are points that belong together.
type Series struct {
	Name   string  `json:"name"` // unique in the chart
	Points []Point `json:"points"`
}

// Point is one figure, or the reason why there is none. Make it with Value, Measured, Bin, Boxed
// or Gap.
type Point struct {
	X     float64  `json:"x"`
	XTo   *float64 `json:"x_to,omitempty"`  // upper edge of a histogram's column
	Label string   `json:"label,omitempty"` // of a bar; else shown on hover
	Y     *float64 `json:"y"`               // nil: there is no figure
	// Low and High bound Y at 95 %; nil where there is no interval.
	Low     *float64 `json:"low,omitempty"`
	High    *float64 `json:"high,omitempty"`
	AtLeast bool     `json:"at_least,omitempty"` // a lower bound: what measures was the limit
	AtMost  bool     `json:"at_most,omitempty"`  // an upper bound
	// Invalid: Y breaks a rule of the measurement and is shown for what it is, or missing; Why
	// says why.
	Invalid bool   `json:"invalid,omitempty"`
	Why     string `json:"why,omitempty"`
	// Outlier marks a single value far from the others of its kind (see Outliers); it is kept.
	Outlier bool `json:"outlier,omitempty"`
	// Spread is that of the values of a Box; nil elsewhere.
	Spread *Spread `json:"spread,omitempty"`
	// Rounds are the values that Y is the median of, in the order in which they were measured.
	// Two documents are compared by them.
	Rounds []float64 `json:"rounds,omitempty"`
}

// Spread is percentiles of many values around their median: the ends of the whiskers, 5 and 95, and
// of the box, 25 and 75.
type Spread struct {
	P5  float64 `json:"p5"`
	P25 float64 `json:"p25"`
	P75 float64 `json:"p75"`
	P95 float64 `json:"p95"`
}

// Table is figures to read, sortable on the page.
type Table struct {
	ID      string   `json:"id"` // unique in the document, as a chart's
	Title   string   `json:"title"`
	What    string   `json:"what,omitempty"`
	Columns []Column `json:"columns"`
	Rows    [][]Cell `json:"rows"` // as many cells each as there are columns
}

// Column is the head of a column.
type Column struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"` // of numbers that are printed without
}

// Cell is one entry. Make it with Text, Number or Quantity.
type Cell struct {
	Text  string   `json:"text"`
	Value *float64 `json:"value,omitempty"` // to sort by; nil for words
}

// Chart adds a chart and returns it.
func (d *Document) Chart(c Chart) *Chart {
	d.Charts = append(d.Charts, &c)
	return &c
}

// Table adds a table and returns it.
func (d *Document) Table(id, title string, columns ...Column) *Table {
	t := &Table{ID: id, Title: title, Columns: columns}
	d.Tables = append(d.Tables, t)
	return t
}

// Set adds a setting.
func (d *Document) Set(name, value string) {
	d.Setup = append(d.Setup, Setting{Name: name, Value: value})
}

// Refuse adds a figure that is not given.
func (d *Document) Refuse(what, why string) { d.Refusals = append(d.Refusals, Refusal{what, why}) }

// Add puts points into the series of that name, which is made if it is not there.
func (c *Chart) Add(series string, points ...Point) {
	for _, s := range c.Series {
		if s.Name == series {
			s.Points = append(s.Points, points...)
			return
		}
	}
	c.Series = append(c.Series, &Series{series, points})
}

// Row adds a row.
func (t *Table) Row(cells ...Cell) { t.Rows = append(t.Rows, cells) }
