package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchmath"

	"levee/internal/host"
	"levee/internal/quantity"
)

// Options of Compare. The zero value is what `levee bench compare` does.
type Options struct {
	// Least is the least move of a median that matters, as a share of the first; 0 for 0.05.
	Least float64
	// Alpha is the share of false alarms to be had among the differences called real; 0 for 0.05.
	Alpha float64
}

func (o Options) orDefaults() Options {
	if o.Least == 0 {
		o.Least = 0.05
	}
	if o.Alpha == 0 {
		o.Alpha = 0.05
	}
	return o
}

// Verdict on one figure of two documents.
type Verdict string

const (
	Worse   Verdict = "worse"   // really, and in the direction that the chart calls bad
	Gained  Verdict = "better"  // really, and in the good direction
	Changed Verdict = "changed" // really, in a chart that calls no direction good
	Same    Verdict = "no difference shown"
	// one side is a bound, or has no figure, or there is nothing to test
	Unknown Verdict = "unknown"
)

// Comparison is the comparison of two documents of the same measurement.
type Comparison struct {
	Schema   string   `json:"schema"` // comparisonSchema
	Bench    string   `json:"bench"`
	First    Side     `json:"first"`
	Second   Side     `json:"second"`
	Least    float64  `json:"least"`
	Alpha    float64  `json:"alpha"`
	Warnings []string `json:"warnings"` // what else differs than what is measured
	Notes    []string `json:"notes"`
	// Count counts the figures of each verdict.
	Count map[Verdict]int `json:"count"`
	// of all figures that both have, real ones first
	Differences []Difference `json:"differences"`
	Orders      []Order      `json:"orders"`
	Steadiness  []Steadiness `json:"steadiness"`
}

// comparisonSchema names the layout of a Comparison as JSON.
const comparisonSchema = "levee.comparison/1"

// Side is one of the documents.
type Side struct {
	Title   string `json:"title"`
	Command string `json:"command"`
	Version string `json:"version"`
	Started string `json:"started"`
	Machine string `json:"machine"`
}

// Difference is one figure in both documents.
type Difference struct {
	Chart   string  `json:"chart"` // its id
	Series  string  `json:"series"`
	At      string  `json:"at"` // the label, or x with its unit
	Unit    string  `json:"unit"`
	First   *Figure `json:"first"`
	Second  *Figure `json:"second"`
	Ratio   float64 `json:"ratio"`       // of the medians, second over first; 0 if there is none
	P       float64 `json:"p,omitempty"` // of the rank test
	Q       float64 `json:"q,omitempty"` // P once the number of figures is allowed for
	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why,omitempty"`

	better Better
	tested bool
}

// Figure is a median with its 95 % interval.
type Figure struct {
	Median   float64     `json:"median"`
	Interval *[2]float64 `json:"interval"`
	Bound    string      `json:"bound,omitempty"` // "at least", "at most", "unknown"
}

// errIncomparable is the error of Compare where it refuses.
var errIncomparable = errors.New("these two reports cannot be compared")

// Compare says which differences of two documents of the same measurement are real. A figure that
// has its rounds in both is tested by ranks (Mann and Whitney, 1947: nothing is assumed of the
// distribution), and the many tests are corrected by the false discovery rate (Benjamini and
// Hochberg, 1995). Real is what passes and moved by Least or more. What has intervals but no rounds
// is real if they do not overlap.
//
// The rounds of a run tell how it varied within its minutes. Whether another run on the same
// machine would differ as much, only another run tells.
func Compare(a, b *Document, o Options) (*Comparison, error) {
	if a.Bench != b.Bench {
		return nil, fmt.Errorf("%w: one is of `levee bench %s`, the other of `levee bench %s`",
			errIncomparable, printable(a.Bench), printable(b.Bench))
	}
	o = o.orDefaults()
	a.settle()
	b.settle()
	c := &Comparison{
		Schema: comparisonSchema, Bench: a.Bench, First: side(a), Second: side(b), Least: o.Least,
		Alpha:    o.Alpha,
		Warnings: warnings(a, b), Notes: []string{}, Differences: []Difference{},
		Count: map[Verdict]int{}, Orders: []Order{}, Steadiness: []Steadiness{},
	}
	c.collect(a, b)
	c.correct()
	for i := range c.Differences {
		d := &c.Differences[i]
		if d.Verdict == "" {
			d.judge(o)
		}
		c.Count[d.Verdict]++
	}
	c.noteRounds(a, b)
	c.agree(a, b)
	slices.SortStableFunc(c.Differences, func(x, y Difference) int {
		return cmp.Or(cmp.Compare(order(x.Verdict), order(y.Verdict)),
			-cmp.Compare(x.moved(), y.moved()))
	})
	return c, nil
}

func side(d *Document) Side {
	return Side{d.Title, d.Command, d.Version, d.Started.UTC().Format("2006-01-02T15:04:05Z"),
		d.Machine.String()}
}

// coordinates of a figure in a document.
type coordinates struct {
	chart, series, label string
	x                    float64
}

// collect pairs the figures of both.
func (c *Comparison) collect(a, b *Document) {
	second, chartsOfB := map[coordinates]*Point{}, map[string]bool{}
	for _, chart := range b.Charts {
		chartsOfB[chart.ID] = true
		for _, s := range chart.Series {
			for i := range s.Points {
				second[key(chart, s, &s.Points[i])] = &s.Points[i]
			}
		}
	}
	firstOnly, left := 0, 0
	for _, chart := range a.Charts {
		if !chart.Kind.paired() {
			if chartsOfB[chart.ID] {
				left++
			}
			continue
		}
		for _, s := range chart.Series {
			for i := range s.Points {
				p := &s.Points[i]
				at := key(chart, s, p)
				q, ok := second[at]
				if !ok {
					firstOnly++
					continue
				}
				delete(second, at)
				c.Differences = append(c.Differences, newDifference(chart, s.Name, p, q))
			}
		}
	}
	secondOnly := 0
	for _, chart := range b.Charts {
		if !chart.Kind.paired() {
			continue
		}
		for _, s := range chart.Series {
			for i := range s.Points {
				if _, alone := second[key(chart, s, &s.Points[i])]; alone {
					secondOnly++
				}
			}
		}
	}
	if firstOnly+secondOnly > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d figures are in the first report only, %d in "+
			"the second only", firstOnly, secondOnly))
	}
	if left > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d histograms, distributions, boxes and time "+
			"series are not compared point by point: look at them", left))
	}
}

func key(c *Chart, s *Series, p *Point) coordinates {
	if c.Kind.labelled() {
		return coordinates{c.ID, s.Name, p.Label, 0}
	}
	return coordinates{c.ID, s.Name, p.Label, p.X}
}

func newDifference(c *Chart, series string, p, q *Point) Difference {
	d := Difference{Chart: c.ID, Series: series, At: p.place(c), Unit: c.Y.Unit, First: figureOf(p),
		Second: figureOf(q), better: c.Better}
	switch {
	case p.Y == nil && q.Y == nil:
		d.Verdict, d.Why = Unknown, "neither has a figure"
	case p.Y == nil:
		d.Verdict, d.Why = Unknown, "the first has no figure: "+p.Why
	case q.Y == nil:
		d.Verdict, d.Why = Unknown, "the second has no figure: "+q.Why
	case p.Invalid || q.Invalid:
		d.Verdict, d.Why = Unknown, "one of the figures breaks a rule of its measurement"
	}
	if d.Verdict != "" {
		return d
	}
	if *p.Y != 0 {
		d.Ratio = *q.Y / *p.Y
	}
	if len(p.Rounds) > 1 && len(q.Rounds) > 1 {
		r := benchmath.AssumeNothing.Compare(sampleOf(p.Rounds), sampleOf(q.Rounds))
		d.P, d.tested = r.P, true
	}
	return d
}

func sampleOf(rounds []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(rounds), &benchmath.DefaultThresholds)
}

func figureOf(p *Point) *Figure {
	if p.Y == nil {
		return nil
	}
	f := &Figure{Median: *p.Y, Bound: p.bound()}
	if p.Low != nil {
		f.Interval = &[2]float64{*p.Low, *p.High}
	}
	return f
}

// correct fills Q: the smallest false discovery rate at which a figure would still be called
// different.
func (c *Comparison) correct() {
	var tested []*Difference
	for i := range c.Differences {
		if c.Differences[i].tested {
			tested = append(tested, &c.Differences[i])
		}
	}
	slices.SortFunc(tested, func(x, y *Difference) int { return cmp.Compare(x.P, y.P) })
	least := 1.0
	for i, d := range slices.Backward(tested) {
		least = min(least, d.P*float64(len(tested))/float64(i+1))
		d.Q = least
	}
}

// judge decides on a figure that both have.
func (d *Difference) judge(o Options) {
	if why := d.hidden(); why != "" {
		d.Verdict, d.Why = Unknown, why
		return
	}
	switch {
	case d.First.Median == d.Second.Median:
		d.Verdict = Same
		return
	case d.tested && d.Q > o.Alpha:
		d.Verdict, d.Why = Same, "within the scatter of the rounds"
		return
	case !d.tested && (d.First.Interval == nil || d.Second.Interval == nil):
		d.Verdict, d.Why = Unknown, "single values: nothing tells chance from difference"
		return
	case !d.tested && d.First.Interval[0] <= d.Second.Interval[1] &&
		d.Second.Interval[0] <= d.First.Interval[1]:
		d.Verdict, d.Why = Same, "the intervals overlap"
		return
	case d.moved() < math.Log1p(o.Least):
		d.Verdict, d.Why = Same, fmt.Sprintf("smaller than %g %%", o.Least*100)
		return
	}
	more := d.Second.Median > d.First.Median
	switch {
	case d.better == "":
		d.Verdict = Changed
	case more == (d.better == More):
		d.Verdict = Gained
	default:
		d.Verdict = Worse
	}
}

// hidden says why bounds hide the difference: of a figure that is at least something, only a value
// below tells.
func (d *Difference) hidden() string {
	a, b := d.First, d.Second
	switch {
	case a.Bound == "" && b.Bound == "":
		return ""
	case a.Bound != "" && b.Bound != "":
		return "both are bounds"
	case a.Bound == "at least" && b.Median < a.Median, a.Bound == "at most" && b.Median > a.Median,
		b.Bound == "at least" && a.Median < b.Median, b.Bound == "at most" && a.Median > b.Median:
		return "" // the true difference is larger still
	}
	return "one of them is a bound on the side of the other"
}

// moved returns the distance of the medians, the same for a rise and the fall that undoes it.
func (d *Difference) moved() float64 {
	if d.Ratio > 0 {
		return math.Abs(math.Log(d.Ratio))
	}
	if d.First != nil && d.Second != nil && d.First.Median != d.Second.Median {
		return math.Inf(1) // from or to zero
	}
	return 0
}

func order(v Verdict) int {
	return slices.Index([]Verdict{Worse, Gained, Changed, Unknown, Same},
		v)
}

// noteRounds says when there are too few rounds for the number of figures.
func (c *Comparison) noteRounds(a, b *Document) {
	tested, few := 0, 0
	for i := range c.Differences {
		if c.Differences[i].tested {
			tested++
		}
	}
	for _, d := range []*Document{a, b} {
		for _, chart := range d.Charts {
			for _, s := range chart.Series {
				for _, p := range s.Points {
					if n := len(p.Rounds); n > 1 && (few == 0 || n < few) {
						few = n
					}
				}
			}
		}
	}
	if tested == 0 || smallestP(few)*float64(tested) <= c.Alpha {
		return
	}
	need := few
	for smallestP(need)*float64(tested) > c.Alpha {
		need++
	}
	c.Notes = append(c.Notes, fmt.Sprintf("with %d rounds a difference in one figure alone "+
		"cannot be told among %d; %d rounds can", few, tested, need))
}

// smallestP returns what the rank test says of n against n values that do not overlap at all: 2 /
// (2n over n).
func smallestP(n int) float64 {
	ways, _ := new(big.Float).SetInt(new(big.Int).Binomial(int64(2*n), int64(n))).Float64()
	return 2 / ways
}

// warnings lists what differs besides the figures.
func warnings(a, b *Document) []string {
	out := []string{}
	differs := func(what, x, y string) {
		if x != y {
			out = append(out, fmt.Sprintf("%s: %s, then %s", what, orNone(x), orNone(y)))
		}
	}
	for i, d := range []*Document{a, b} {
		if d.Incomplete != "" {
			out = append(out, fmt.Sprintf("the %s report is incomplete: %s",
				[]string{"first", "second"}[i], d.Incomplete))
		}
	}
	differs("levee", a.Version, b.Version)
	compareNamed(settings(a.Setup, b.Setup), settings(b.Setup, nil), differs)
	compareNamed(machineFacts(&a.Machine), machineFacts(&b.Machine), differs)
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func compareNamed(a, b map[string]string, differs func(what, x, y string)) {
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		differs(name, a[name], b[name])
	}
}

// settings returns the settings of a list by name; a number that is near enough to the other
// report's is given that one's value.
func settings(list, other []Setting) map[string]string {
	out := map[string]string{}
	for _, s := range list {
		out[s.Name] = s.Value
		for _, o := range other {
			if o.Name == s.Name && s.near(&o) {
				out[s.Name] = o.Value
			}
		}
	}
	return out
}

// near tells whether two settings are numbers that differ by no more than the factor that the first
// allows.
func (s *Setting) near(o *Setting) bool {
	a, err := strconv.ParseFloat(s.Value, 64)
	b, otherErr := strconv.ParseFloat(o.Value, 64)
	return err == nil && otherErr == nil && a > 0 && b > 0 && max(a, b) <= min(a, b)*s.Within
}

// machineFacts leaves out the frequency at one moment, which is never the same twice.
func machineFacts(m *host.Info) map[string]string {
	out := map[string]string{}
	for _, f := range m.Facts() {
		if f.Name != host.Frequency {
			out[f.Name] = f.Value
		}
	}
	return out
}

// Comparisons are those of several documents with the first.
type Comparisons struct {
	titles []string
	all    []*Comparison
}

// comparisonsSchema names the layout of several as JSON; one stands by itself.
const comparisonsSchema = "levee.comparisons/1"

// Add adds what a document of that title has against the first.
func (s *Comparisons) Add(title string, c *Comparison) {
	s.titles, s.all = append(s.titles, title), append(s.all, c)
}

// Worse tells whether something is worse than in the first.
func (s *Comparisons) Worse() bool {
	return slices.ContainsFunc(s.all, func(c *Comparison) bool { return c.Count[Worse] > 0 })
}

// JSON returns what is printed: the comparison, of several a list with their titles.
func (s *Comparisons) JSON() any {
	if len(s.all) == 1 {
		return s.all[0]
	}
	type titled struct {
		Title string `json:"title"`
		*Comparison
	}
	out := struct {
		Schema      string   `json:"schema"`
		Comparisons []titled `json:"comparisons"`
	}{Schema: comparisonsSchema}
	for i, c := range s.all {
		out.Comparisons = append(out.Comparisons, titled{s.titles[i], c})
	}
	return out
}

// Text prints them for a person.
func (s *Comparisons) Text() string {
	if len(s.all) == 1 {
		return s.all[0].Text()
	}
	var b strings.Builder
	for i, c := range s.all {
		fmt.Fprintf(&b, "%s== %s, against the first ==\n%s", strings.Repeat("\n", min(i, 1)),
			printable(s.titles[i]), c.Text())
	}
	return b.String()
}

// Text prints the comparison for a person.
func (c *Comparison) Text() string {
	var b strings.Builder
	for i, s := range []Side{c.First, c.Second} {
		fmt.Fprintf(&b, "%s  %s, %s: %s\n", []string{"first ", "second"}[i], s.Started,
			printable(s.Machine), printable(s.Command))
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(&b, "careful: %s\n", printable(w))
	}
	b.WriteByte('\n')
	for _, d := range c.Differences {
		if d.Verdict == Same || d.Verdict == Unknown {
			continue
		}
		fmt.Fprintf(&b, "%-7s  %s, %s, %s: %s -> %s (%s)\n", d.Verdict, printable(d.Chart),
			printable(d.Series), printable(d.At), d.First.text(d.Unit), d.Second.text(d.Unit),
			d.evidence())
	}
	real := c.Count[Worse] + c.Count[Gained] + c.Count[Changed]
	switch {
	case real > 0:
	case c.Count[Same] == 0:
		b.WriteString("nothing could be compared\n")
	default:
		b.WriteString("no real difference\n")
	}
	fmt.Fprintf(&b, "\n%d figures: %d worse, %d better, %d changed, %d with no difference shown, "+
		"%d that cannot be told\n",
		len(c.Differences), c.Count[Worse], c.Count[Gained], c.Count[Changed], c.Count[Same],
		c.Count[Unknown])
	b.WriteString(c.agreement())
	for _, n := range c.Notes {
		fmt.Fprintln(&b, n)
	}
	fmt.Fprintf(&b, "real: rank test of the rounds with a false discovery rate of %g %%, and "+
		"medians %g %% apart or more\n", c.Alpha*100, c.Least*100)
	return b.String()
}

func (f *Figure) text(unit string) string {
	return strings.TrimSpace(f.Bound + " " + quantity.Print(f.Median, printable(unit)))
}

func (d *Difference) evidence() string {
	ratio := "from or to zero"
	if d.Ratio > 0 {
		ratio = fmt.Sprintf("%.3g times", d.Ratio)
	}
	if d.tested {
		return fmt.Sprintf("%s, q %.2g", ratio, d.Q)
	}
	return ratio + ", intervals do not overlap"
}
