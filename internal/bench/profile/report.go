package profile

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/bench/ladder"
	"levee/internal/quantity"
	"levee/internal/report"
)

// Report is the outcome.
type Report struct {
	bench.Head
	Rung, What string // of an interface in service its name, and its policy
	Event      string // what made the samples: cycles or cpu-clock
	Frequency  int    // samples a second that were asked for
	Samples    int    // of a core that was not idle
	Lost       uint64 // samples that found no room
	WindowMS   int64
	PPS        []float64 // packets a second in each window, with the samples being taken
	Shares     []Share   // of each class, in their order; empty if no window is valid
	Functions  []Function
	Rates      []*Rate  // by the offered rate, if some were asked for; the rest is of all then
	Why        []string // why windows do not count
	// Live is of an interface in service, nil of a rung in the lab.
	Live *Live

	flame   *report.Flame
	own     map[Function]float64 // sums of shares over the windows
	stacks  map[string]*stack    // of all windows
	idle    int                  // samples
	sampled int                  // windows that have a sample
}

// Share is one class's part of the core's time, in percent, a value for each window.
type Share struct {
	Class   Class
	Windows []float64
}

// Rate holds the profile of the core at one rate of the flood, packets a second.
type Rate struct {
	Rate   float64
	PPS    []float64 // packets a second that were taken, in each window
	Shares []Share   // empty if no window is valid

	windows []*window
}

// Function is one with its own time: what it calls is not in it.
type Function struct {
	Name  string
	Class Class
	Share float64 // percent of the time
}

// mostFunctions are listed.
const mostFunctions = 25

// judge takes the windows that keep the rules of package flood.
func (r *Report) judge(w *observer, g *flood.Rung) {
	if r.What = g.What; g.Missing != "" {
		r.Why = append(r.Why, g.Missing)
	}
	var valid []*window
	var reasons []string
	// Both lists are in the order of measuring; of the last window there may be samples only.
	extra := len(w.windows) - len(g.Windows)
	matched := extra == 0 || extra == 1
	for i, x := range g.Windows {
		reasons = append(reasons, x.Invalid...)
		if len(x.Invalid) == 0 && matched {
			valid = append(valid, w.windows[i])
			r.PPS = append(r.PPS, x.PPS)
			for _, at := range r.Rates {
				if ladder.AtRate(traffic, at.Rate) == x.Traffic {
					at.PPS = append(at.PPS, x.PPS)
					at.windows = append(at.windows, w.windows[i])
				}
			}
		}
	}
	if !matched {
		reasons = append(reasons, fmt.Sprintf("%d windows were watched and %d judged: they "+
			"cannot be told apart", len(w.windows), len(g.Windows)))
	}
	r.Why = append(r.Why, grouped(reasons)...)
	r.summarise(w, valid)
	r.Caveats = r.caveats()
}

var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// grouped tells reasons that differ in their figures only once, and how often.
func grouped(reasons []string) []string {
	first, count := map[string]string{}, map[string]int{}
	for _, why := range reasons {
		key := number.ReplaceAllString(why, "#")
		if count[key]++; count[key] == 1 {
			first[key] = why
		}
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(first)) {
		why := first[key]
		if n := count[key]; n > 1 {
			why = fmt.Sprintf("%s (and %d more such)", why, n-1)
		}
		out = append(out, why)
	}
	return out
}

// summarise adds the windows up.
func (r *Report) summarise(w *observer, windows []*window) {
	if w.sampler != nil {
		r.Event, r.Lost = w.sampler.event, w.sampler.lost
	}
	r.begin()
	for _, x := range windows {
		r.add(x)
	}
	for _, at := range r.Rates {
		for _, x := range at.windows {
			at.Shares = addShares(at.Shares, x)
		}
	}
	r.end()
}

func (r *Report) begin() { r.own, r.stacks = map[Function]float64{}, map[string]*stack{} }

// add takes in a window, which may be let go then. One without a sample says nothing.
func (r *Report) add(x *window) {
	if x.samples == 0 {
		return
	}
	r.Shares = addShares(r.Shares, x)
	r.Samples += x.samples
	r.sampled++
	for _, s := range x.stacks {
		r.own[Function{Name: s.functions[len(s.functions)-1], Class: s.class}] += x.percent(s.count)
	}
	addStacks(r.stacks, x.stacks, 1)
	r.idle += x.idleSamples()
}

// end lists the functions of all windows, and draws them.
func (r *Report) end() {
	r.flame = newFlame()
	for _, s := range r.stacks {
		if n := int(math.Round(s.count)); n > 0 {
			r.flame.Add(s.functions, string(s.class), string(Kernel), n)
		}
	}
	r.flame.Add([]string{"[idle]"}, string(Idle), string(Kernel), r.idle)
	for f, sum := range r.own {
		f.Share = sum / float64(r.sampled)
		r.Functions = append(r.Functions, f)
	}
	slices.SortFunc(r.Functions, func(a, b Function) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Name, b.Name))
	})
	r.Functions = r.Functions[:min(len(r.Functions), mostFunctions)]
}

// addShares appends those of each class in a window, unless it has no sample.
func addShares(to []Share, x *window) []Share {
	if x.samples == 0 {
		return to
	}
	if to == nil {
		for _, c := range Classes {
			to = append(to, Share{Class: c})
		}
	}
	split := x.split(x.counts())
	for i := range to {
		to[i].Windows = append(to[i].Windows, split[to[i].Class])
	}
	return to
}

// counts returns the samples of each class.
func (x *window) counts() map[Class]float64 {
	counts := map[Class]float64{}
	for _, s := range x.stacks {
		counts[s.class] += s.count
	}
	return counts
}

// split is percent of the time by class, 100 together, of a window with samples.
func (x *window) split(counts map[Class]float64) map[Class]float64 {
	out := map[Class]float64{Idle: 100 * x.idle}
	for c, n := range counts {
		out[c] = x.percent(n)
	}
	return out
}

// percent of the time that n samples stand for: they share what was not idle.
func (x *window) percent(n float64) float64 {
	return 100 * (1 - x.idle) * n / float64(x.samples)
}

// idleSamples returns how many samples idle time would have given, for the flame graph.
func (x *window) idleSamples() int {
	if x.idle == 1 { // the samples are of less than a tick
		return 0
	}
	return int(math.Round(float64(x.samples) * x.idle / (1 - x.idle)))
}

func (r *Report) caveats() []string {
	out := []string{
		fmt.Sprintf("%d samples of the receiving core by %s, %d a second asked for; the flood is "+
			"that of bench ladder, the windows keep its rules", r.Samples, r.Event, r.Frequency),
		classesAre(labDriver) + "other tasks: processes that have nothing to do with the rung; " +
			"unknown: code without a symbol",
		"sampling itself takes time: packets a second are a little lower than those of bench " +
			"ladder; veth has no DMA: on a network card the driver's share is another",
	}
	return append(out, r.caveatsOfSamples()...)
}

// classesAre says what the classes are, but for other tasks.
func classesAre(driver string) string {
	if driver != "" {
		driver = " (" + driver + ")"
	}
	return "driver: the innermost function is of the driver" + driver +
		"; eBPF program: it is a program; helpers: called by a program; netfilter: a function " +
		"of netfilter or called by one; kernel: any other, interrupts included; "
}

// caveatsOfSamples says what the samples do not see.
func (r *Report) caveatsOfSamples() (out []string) {
	if r.Event == clockEvent {
		out = append(out, "no hardware counter here: samples come from a timer, which sees code "+
			"that runs with interrupts off only where it allows them again")
	}
	out = append(out, "idle time is from /proc/stat, in ticks of 10 ms: not every core gives "+
		"samples while it sleeps")
	if r.Lost > 0 {
		out = append(out, fmt.Sprintf("%d samples were lost", r.Lost))
	}
	return out
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	complete := r.Head
	complete.Incomplete = "" // said behind the rung
	t := complete.Text("", "")
	t.Printf("%s: %s\n", r.Rung, r.What)
	if r.Incomplete != "" {
		t.Printf("INCOMPLETE: %s\n", r.Incomplete)
	}
	if len(r.Rates) > 0 {
		r.byRate(t)
	}
	if r.Live != nil {
		r.liveText(t)
	} else if len(r.PPS) > 0 && len(r.Rates) == 0 {
		m, lo, hi := report.Summary(r.PPS)
		t.Printf("%.2f Mpps%s while sampled, %d windows of %d ms\n", m/1e6,
			interval(len(r.PPS), lo/1e6, hi/1e6, " (%.2f-%.2f)"), len(r.PPS), r.WindowMS)
	}
	t.Table(0, func(w io.Writer) {
		switch {
		case len(r.Rates) > 0 && len(r.Shares) > 0:
			fmt.Fprintln(w, "\nof the core's time, all rates together\t%, mean\tmedian\t"+
				"95 % interval")
		case len(r.Shares) > 0 && r.Live != nil:
			fmt.Fprintln(w, "\nof the time of the cores\t%, mean\tmedian\t95 % interval")
		case len(r.Shares) > 0:
			fmt.Fprintln(w, "\nof the core's time\t%, mean\tmedian\t95 % interval")
		default:
			fmt.Fprintln(w, "\nno figure")
		}
		for _, s := range r.Shares {
			m, lo, hi := report.Summary(s.Windows)
			fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%s\n", s.Class, mean(s.Windows), m,
				interval(len(s.Windows), lo, hi, "%.1f-%.1f"))
		}
		if len(r.Functions) > 0 {
			fmt.Fprintln(w, "\nfunction, without what it calls\t%\tclass")
		}
		for _, f := range r.Functions {
			fmt.Fprintf(w, "%s\t%.1f\t%s\n", f.Name, f.Share, f.Class)
		}
	})
	t.Printf("\n")
	for _, why := range r.Why {
		t.Printf("windows left out: %s\n", why)
	}
	return t.End(w, &r.Head)
}

// byRate prints the means of each class by the offered rate, a column each.
func (r *Report) byRate(t *bench.Text) {
	t.Table(tabwriter.AlignRight, func(w io.Writer) {
		fmt.Fprint(w, "packets/s offered\t")
		for _, at := range r.Rates {
			fmt.Fprintf(w, "%s\t", flood.Rate(at.Rate))
		}
		fmt.Fprint(w, "\ntaken\t")
		for _, at := range r.Rates {
			if len(at.PPS) == 0 {
				fmt.Fprint(w, "-\t")
				continue
			}
			m, _, _ := report.Summary(at.PPS)
			fmt.Fprintf(w, "%s\t", flood.Rate(quantity.Round(m, 3)))
		}
		for i, c := range Classes {
			fmt.Fprintf(w, "\n%s, %%\t", c)
			for _, at := range r.Rates {
				if len(at.Shares) == 0 {
					fmt.Fprint(w, "-\t")
					continue
				}
				fmt.Fprintf(w, "%.1f\t", mean(at.Shares[i].Windows))
			}
		}
		fmt.Fprintln(w)
	})
}

// ratesChart is the share of each class against the offered rate.
func (r *Report) ratesChart(d *report.Document) {
	c := d.Chart(report.Chart{ID: "profile-rates", Title: "The receiving core's time by rate",
		X: report.Axis{Label: "offered", Unit: "packets/s"},
		Y: report.Axis{Label: "share of the time", Unit: "%"}})
	t := d.Table("profile-by-rate", "Time by class and offered rate; the means of a rate add up "+
		"to 100", report.Column{Name: "offered", Unit: "packets/s"},
		report.Column{Name: "taken", Unit: "packets/s"}, report.Column{Name: "class"},
		report.Column{Name: "mean", Unit: "%"}, report.Column{Name: "median", Unit: "%"})
	for i, class := range Classes {
		for _, at := range r.Rates {
			if len(at.Shares) == 0 {
				c.Add(string(class), report.Gap(at.Rate, "no window of this rate is valid"))
				continue
			}
			windows := at.Shares[i].Windows
			c.Add(string(class), report.Measured(at.Rate, windows))
			taken, _, _ := report.Summary(at.PPS)
			m, _, _ := report.Summary(windows)
			t.Row(report.Number(at.Rate), report.Number(taken), report.Text(string(class)),
				report.Number(mean(windows)), report.Number(m))
		}
	}
}

// interval is printed if there were windows enough for one.
func interval(n int, lo, hi float64, format string) string {
	if n < bench.MinRounds {
		return ""
	}
	return fmt.Sprintf(format, lo, hi)
}

// mean returns of values that add up to 100 with those of the other classes, as medians need not.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// Document returns the report for files.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("profile", r.title(), r.What)
	if r.Live != nil {
		r.Live.describe(d)
	} else {
		d.Set("rung", r.Rung)
	}
	d.Set("window", fmt.Sprintf("%d ms", r.WindowMS))
	d.Set("event", r.Event)
	for _, why := range r.Why {
		d.Refuse(r.Rung, why)
	}
	if len(r.Rates) > 0 {
		d.Set("rates", strings.Join(bench.Names(r.Rates, (*Rate).name), ", "))
		r.ratesChart(d)
	}
	c := d.Chart(report.Chart{ID: "profile-classes", Title: r.whose() + " time",
		Kind: report.Bar, Y: report.Axis{Label: "share of the time", Unit: "%"}})
	for _, s := range r.Shares {
		c.Add(r.Rung, report.Measured(0, s.Windows).Of(string(s.Class)))
	}
	split := d.Table("profile-shares", "Time by class; the means add up to 100",
		report.Column{Name: "class"}, report.Column{Name: "mean", Unit: "%"},
		report.Column{Name: "median", Unit: "%"})
	for _, s := range r.Shares {
		m, _, _ := report.Summary(s.Windows)
		split.Row(report.Text(string(s.Class)), report.Number(mean(s.Windows)), report.Number(m))
	}
	t := d.Table("profile-functions", "Functions, without what they call",
		report.Column{Name: "function"}, report.Column{Name: "class"},
		report.Column{Name: "share", Unit: "%"})
	for _, f := range r.Functions {
		t.Row(report.Text(f.Name), report.Text(string(f.Class)), report.Number(f.Share))
	}
	return d
}

// colours of the classes in a flame graph.
var colours = map[Class]string{
	Driver: "#8fb8de", Program: "#7cc47f", Helper: "#c9e19f", Netfilter: "#f2a65e",
	Kernel: "#e9d38d", User: "#c9a5d6", Idle: "#d7d7d7", Others: "#b8a99a", Unknown: "#e28a8a",
}

func newFlame() *report.Flame {
	var classes []report.FlameClass
	for _, c := range Classes {
		classes = append(classes, report.FlameClass{Name: string(c), Colour: colours[c]})
	}
	return report.NewFlame(classes...)
}

// Flame draws the flame graph; since another one, nil for none.
func (r *Report) Flame(before *report.Flame) []byte {
	said := fmt.Sprintf("%d samples by %s; Linux %s, %s. Hover for shares, click to zoom, click "+
		"the lowest row for all", r.Samples, r.Event, r.Machine.Kernel, r.Machine.CPU)
	if before != nil {
		const most = 3
		if gone := r.flame.Since(before); len(gone) > 0 {
			said = "Gone: " + strings.Join(gone[:min(most, len(gone))], ", ") + ". " + said
		}
	}
	return r.flame.SVG(r.title(), said)
}

// title says what is profiled.
func (r *Report) title() string {
	if r.Live != nil {
		return "What the cores do: " + r.Rung + " in service"
	}
	return "What the receiving core does: " + r.Rung
}

// whose time is split.
func (r *Report) whose() string {
	if r.Live != nil {
		return "The cores'"
	}
	return "The receiving core's"
}

func (at *Rate) name() string { return flood.Rate(at.Rate) }

// Lacking names the rung if it has no figure, or the rates that have none.
func (r *Report) Lacking() (lacking []string) {
	for _, at := range r.Rates {
		if len(at.Shares) == 0 {
			lacking = append(lacking, at.name()+" packets/s")
		}
	}
	if len(lacking) > 0 {
		return lacking
	}
	if len(r.Shares) == 0 {
		return []string{r.Rung}
	}
	return nil
}
