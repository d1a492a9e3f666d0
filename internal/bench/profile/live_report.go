package profile

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/quantity"
	"levee/internal/report"
	"levee/internal/usage"
)

// Live says of an interface in service what a rung of the lab does not have.
type Live struct {
	Dev, Driver string
	Policy      string // in force, "" for none
	Hook        string // of the policy
	From, To    string // names of the marks; both are empty without marks
	Ended       string // why it ended without a second mark
	Took        time.Duration
	CPUs        []int
	// PerPacket holds, for each window, the ns that the policy's program took for a packet which
	// arrived, with what it called; empty where WhyNone says why.
	PerPacket []float64
	WhyNone   string
	Cores     []Core // as CPUs

	marked   bool
	samples  float64 // of the policy's program
	replaced bool
}

// Core holds the shares of one core's time over the whole profile, in percent.
type Core struct {
	CPU    int
	Shares map[Class]float64

	counts  map[Class]float64
	idle    float64 // sum over windows
	windows int
}

// core takes in what a core has done in a window.
func (l *Live) core(i int, x *window) {
	if l.Cores == nil {
		l.Cores = make([]Core, len(l.CPUs))
	}
	c := &l.Cores[i]
	if c.counts == nil {
		c.CPU, c.counts = l.CPUs[i], map[Class]float64{}
	}
	for class, n := range x.counts() {
		c.counts[class] += n
	}
	c.idle += x.idle
	c.windows++
}

// packets takes in what the policy's program took for the packets of a window.
func (l *Live) packets(x *window, from, to *reading, took time.Duration, cores int) {
	if from.policy == "" || from.policy != to.policy || from.generation != to.generation {
		l.replaced = l.replaced || from.policy != "" || to.policy != ""
		return
	}
	n := 0.0
	for _, id := range to.programs {
		n += x.programs[id]
	}
	l.samples += n
	if judged := to.packets - from.packets; judged > 0 && x.samples > 0 {
		busy := x.percent(n) / 100 * float64(cores) * float64(took.Nanoseconds())
		l.PerPacket = append(l.PerPacket, busy/float64(judged))
	}
}

// end takes in what stands behind all windows.
func (l *Live) end(of *liveRun) {
	l.marked = of.Marks != nil
	l.Policy, l.Hook = of.before.policy, of.before.hook
	switch {
	case l.replaced:
		l.WhyNone = "the policy was replaced or came meanwhile"
	case l.Policy == "":
		l.WhyNone = "no policy of levee's is in force on " + l.Dev
	case !of.all:
		l.WhyNone = "packets of all cores are counted, and --cpu leaves out some: leave --cpu out"
	case len(l.PerPacket) == 0:
		l.WhyNone = "no packet arrived that it judged"
	case l.samples < fewestOfProgram:
		l.WhyNone = fmt.Sprintf("%.0f samples of it are too few (%d are wanted): take longer, or "+
			"more packets", l.samples, fewestOfProgram)
	}
	if l.WhyNone != "" {
		l.PerPacket = nil
	}
	for i := range l.Cores {
		c := &l.Cores[i]
		all := 0.0
		for _, n := range c.counts {
			all += n
		}
		idle := c.idle / float64(c.windows)
		c.Shares = map[Class]float64{Idle: 100 * idle}
		for class, n := range c.counts {
			c.Shares[class] = 100 * (1 - idle) * n / all
		}
	}
}

// what says what was profiled.
func (l *Live) what() string {
	s := l.Driver + ", no policy of levee's"
	if l.Policy != "" {
		s = fmt.Sprintf("%s, policy %s at %s", l.Driver, l.Policy, l.Hook)
	}
	s = strings.TrimPrefix(s, ", ")
	if l.From != "" || l.To != "" {
		s += fmt.Sprintf("; from mark %s to %s", strconv.Quote(l.From), strconv.Quote(l.To))
	}
	if l.Ended != "" {
		s += "; " + l.Ended
	}
	return s
}

// filters tells whether packets met the driver or a filter on the core.
func (c *Core) filters() bool {
	return c.counts[Driver]+c.counts[Program]+c.counts[Helper]+c.counts[Netfilter] > 0
}

// mostCores of a table for a person.
const mostCores = 32

// liveClasses are the columns of that table, which has room on 80. In service all that is taken
// outside the kernel is of other tasks.
var liveClasses = []struct {
	of   Class
	head string
}{{Driver, "driver"}, {Program, "program"}, {Helper, "helpers"}, {Netfilter, "netfilter"},
	{Kernel, "kernel"}, {Idle, "idle"}, {Others, "others"}, {Unknown, "unknown"}}

// liveText prints what a rung of the lab does not have.
func (r *Report) liveText(t *bench.Text) {
	l := r.Live
	t.Printf("%.1f s of %s (%s), %s\n", l.Took.Seconds(), quantity.Plural(len(l.CPUs), "core"),
		usage.Numbers(l.CPUs), quantity.Plural(r.sampled, "window"))
	if len(r.PPS) > 0 {
		m, lo, hi := report.Summary(r.PPS)
		what := "arrived and were judged"
		if l.Policy == "" {
			what = "arrived, as the interface counts"
		}
		t.Printf("%s packets a second %s%s\n", flood.Rate(quantity.Round(m, 3)), what,
			interval(len(r.PPS), quantity.Round(lo, 3), quantity.Round(hi, 3), " (%.0f-%.0f)"))
	}
	if len(l.PerPacket) > 0 {
		m, lo, hi := report.Summary(l.PerPacket)
		t.Printf("the policy's program takes %.0f ns of a core for each%s\n", m,
			interval(len(l.PerPacket), lo, hi, " (%.0f-%.0f)"))
	} else {
		t.Printf("no figure of the program for each packet: %s\n", l.WhyNone)
	}
	if len(l.Cores) < 2 {
		return
	}
	t.Table(tabwriter.AlignRight, func(w io.Writer) {
		fmt.Fprint(w, "\ncore, %\t")
		for _, class := range liveClasses {
			fmt.Fprintf(w, "%s\t", class.head)
		}
		fmt.Fprintln(w)
		shown := 0
		for i := range l.Cores {
			c := &l.Cores[i]
			if !c.filters() || shown == mostCores {
				continue
			}
			shown++
			fmt.Fprintf(w, "%d\t", c.CPU)
			for _, class := range liveClasses {
				fmt.Fprintf(w, "%.1f\t", c.Shares[class.of])
			}
			fmt.Fprintln(w)
		}
	})
}

// liveCaveats says what to know about the figures.
func (r *Report) liveCaveats() []string {
	l := r.Live
	out := []string{
		fmt.Sprintf("%d samples of %s by %s, %d a second of each asked for; nothing was "+
			"sent or attached", r.Samples, quantity.Plural(len(l.CPUs), "core"), r.Event,
			r.Frequency),
		classesAre(l.Driver) + "other tasks: processes, this one too, but for filters that meet " +
			"their packets, and for netfilter where they change or list its rules; unknown: code " +
			"without a symbol",
		"a core's program, helpers, netfilter and kernel are those of all interfaces; the figure " +
			"for each packet is of this interface's policy for what arrives, without programs " +
			"that it hands packets to",
		"each sample takes the core some 10 us, where that was measured",
	}
	return append(out, r.caveatsOfSamples()...)
}

// describe adds to the report for files what a rung of the lab does not have.
func (l *Live) describe(d *report.Document) {
	d.Set("interface", l.Dev)
	d.Set("policy", l.Policy)
	d.Set("cores", usage.Numbers(l.CPUs))
	d.Set("took", l.Took.Round(time.Millisecond).String())
	if l.marked {
		d.Set("from", strconv.Quote(l.From))
		d.Set("to", strconv.Quote(l.To))
	}
	t := d.Table("profile-packet", "The policy's program for each packet that arrived",
		report.Column{Name: "window"}, report.Column{Name: "time", Unit: "ns"})
	for i, ns := range l.PerPacket {
		t.Row(report.Number(float64(i+1)), report.Number(ns))
	}
	if l.WhyNone != "" {
		d.Refuse("ns a packet", l.WhyNone)
	}
	cores := d.Table("profile-cores", "Time by core and class", report.Column{Name: "core"},
		report.Column{Name: "class"}, report.Column{Name: "share", Unit: "%"})
	for i := range l.Cores {
		for _, class := range Classes {
			cores.Row(report.Number(float64(l.Cores[i].CPU)), report.Text(string(class)),
				report.Number(l.Cores[i].Shares[class]))
		}
	}
}
