package receive

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"text/tabwriter"

	"levee/internal/bench"
	"levee/internal/report"
)

// Report is the outcome of a comparison.
type Report struct {
	bench.Head
	WindowMS int64    `json:"window_ms"`
	Rate     float64  `json:"asked_pps"` // of the generator; 0 for as fast as it goes
	Ways     []*Entry `json:"ways"`
}

// Entry is one way to receive.
type Entry struct {
	Name    string  `json:"name"`
	What    string  `json:"what"`
	Missing string  `json:"missing,omitempty"` // why it could not be measured at all
	Cells   []*Cell `json:"cells"`
}

// Cell is a way with a number of cores and a size of frames.
type Cell struct {
	Cores int `json:"cores"`
	Bytes int `json:"frame_bytes"` // without the check sequence
	// Taken is packets a second that the reader took, Lost the share of those that the kernel's
	// receiving thread took from the card's ring and the reader did not, in percent. Reader and
	// Receiver are run time in ns for each packet taken. Busy is the share of a core that the
	// reader ran, in percent. All are medians of the valid windows with 95 % intervals, null
	// without a window.
	Taken    *bench.Figure `json:"taken_pps"`
	Lost     *bench.Figure `json:"lost_percent"`
	Reader   *bench.Figure `json:"reader_ns"`
	Receiver *bench.Figure `json:"receiver_ns"`
	Busy     *bench.Figure `json:"reader_busy_percent"`
	// AtLeast says that the way was the limit in no window: the generator was, or had a part of
	// the core that receives.
	AtLeast bool     `json:"at_least"`
	Why     []string `json:"why,omitempty"`
	Windows []Window `json:"windows"`
}

var caveats = []string{
	bench.VethCaveat,
	"card's ring: that of veth, 256 packets; what it refuses is no loss of a way, and no figure " +
		"here",
	"each reader has 16 MiB for what waits: 8192 packets of an AF_XDP socket, of the others more " +
		"where they are shorter; a UDP socket has 32 MiB, of which a packet takes a page here",
	"reader: the run time of the thread that takes packets, system calls included; receiver: " +
		"that of the kernel's receiving thread, with all that the way has it do; the reader goes " +
		"first where they share a core",
	"each reader reads the headers of each frame, but recvmmsg, which has none, and tcpdump, " +
		"which writes frames to /dev/null",
}

// Lacking returns the ways that are here and have a cell without a figure.
func (r *Report) Lacking() (names []string) {
	for _, e := range r.Ways {
		if e.Missing == "" && slices.ContainsFunc(e.Cells, func(c *Cell) bool {
			return c.Taken == nil
		}) {
			names = append(names, e.Name)
		}
	}
	return names
}

func (r *Report) summarise() {
	for _, e := range r.Ways {
		if e.Missing != "" {
			e.Cells = nil
		}
		for _, c := range e.Cells {
			c.summarise()
		}
	}
}

// charts are of the figures of cells, one of each for each number of cores.
var charts = []struct {
	id, title, label, unit string
	better                 report.Better
	of                     func(*Window) float64
	in                     func(*Cell) **bench.Figure
}{
	{"taken", "Received", "packets", "packets/s", report.More,
		func(w *Window) float64 { return float64(w.Taken) / w.Seconds },
		func(c *Cell) **bench.Figure { return &c.Taken }},
	{"lost", "Lost behind the card's ring", "of what arrived", "%", report.Less, (*Window).lost,
		func(c *Cell) **bench.Figure { return &c.Lost }},
	{"reader", "Run time of the reader", "for a packet received", "ns", report.Less,
		func(w *Window) float64 { return w.each(w.ReaderBusy) },
		func(c *Cell) **bench.Figure { return &c.Reader }},
	{"receiver", "Run time of the kernel's receiving thread", "for a packet received", "ns",
		report.Less, func(w *Window) float64 { return w.each(w.ReceiverBusy) },
		func(c *Cell) **bench.Figure { return &c.Receiver }},
	{"busy", "Share of a core that the reader ran", "of a core", "%", report.Less,
		func(w *Window) float64 { return 100 * w.ReaderBusy },
		func(c *Cell) **bench.Figure { return &c.Busy }},
}

// each returns a share of the window in ns for each packet that was taken.
func (w *Window) each(share float64) float64 { return share * w.Seconds * 1e9 / float64(w.Taken) }

func (c *Cell) summarise() {
	valid := 0
	c.AtLeast = true
	for _, w := range c.Windows {
		if w.Invalid != "" {
			if !slices.Contains(c.Why, w.Invalid) {
				c.Why = append(c.Why, w.Invalid)
			}
			continue
		}
		valid++
		c.AtLeast = c.AtLeast && !w.Saturated
	}
	for _, f := range charts {
		*f.in(c) = bench.FigureOf(c.rounds(f.of))
	}
	if valid == 0 {
		c.AtLeast = false
		if len(c.Why) == 0 {
			c.Why = []string{"no window was measured"}
		}
	}
}

// lost returns the share of what arrived within the window that was not taken, in percent. What
// waited at its ends makes it no less than 0.
func (w *Window) lost() float64 {
	return 100 * max(0, 1-float64(w.Taken)/float64(max(w.Arrived, 1)))
}

// rounds returns the values of the valid windows.
func (c *Cell) rounds(of func(*Window) float64) (values []float64) {
	for i := range c.Windows {
		if w := &c.Windows[i]; w.Invalid == "" {
			values = append(values, of(w))
		}
	}
	return values
}

// Text prints the report for people.
func (r *Report) Text(w io.Writer) error {
	rate := "as fast as the generator goes"
	if r.Rate > 0 {
		rate = fmt.Sprintf("%.0f packets/s sent", r.Rate)
	}
	t := r.Head.Text(fmt.Sprintf("; %d rounds of %d ms, medians with 95 %% intervals; %s",
		r.Rounds, r.WindowMS, rate), "; these are the figures until then")
	t.Printf("\n")
	t.Table(tabwriter.AlignRight, r.rows)
	t.Printf("\n")
	for _, e := range r.Ways {
		t.Printf("%s: %s\n", e.Name, e.What)
		if e.Missing != "" {
			t.Printf("  no figure: %s\n", e.Missing)
		}
		for _, c := range e.Cells {
			for _, why := range c.Why {
				t.Printf("  %s: %s\n", c.name(), why)
			}
		}
	}
	t.Printf("\n")
	return t.End(w, &r.Head)
}

// name tells a cell from others.
func (c *Cell) name() string {
	return fmt.Sprintf("frames of %d bytes, cores: %d", c.Bytes, c.Cores)
}

// rows is the table: ways below each other for each number of cores and size.
func (r *Report) rows(w io.Writer) {
	fmt.Fprintln(w, "CORES\tBYTES\tWAY\tRECEIVED/S\t95 % INTERVAL\tLOST\tREADER\tRECEIVER\t"+
		"READER BUSY\t")
	for cores, size := range r.shapes() {
		for _, e := range r.Ways {
			c := e.cell(cores, size)
			if c == nil {
				continue
			}
			if c.Taken == nil {
				fmt.Fprintf(w, "%d\t%d\t%s\tno figure\t\t\t\t\t\t\n", c.Cores, c.Bytes, e.Name)
				continue
			}
			least := ""
			if c.AtLeast {
				least = ">= "
			}
			fmt.Fprintf(w, "%d\t%d\t%s\t%s%.0f\t%.0f to %.0f\t%.2f %%\t%.0f ns\t%.0f ns\t"+
				"%.0f %%\t\n", c.Cores, c.Bytes, e.Name, least, c.Taken.Median, c.Taken.Interval[0],
				c.Taken.Interval[1], c.Lost.Median, c.Reader.Median, c.Receiver.Median,
				c.Busy.Median)
		}
	}
}

// shapes returns the numbers of cores and sizes that any way has, in their order.
func (r *Report) shapes() iter.Seq2[int, int] {
	return func(yield func(cores, size int) bool) {
		var had [][2]int
		for _, e := range r.Ways {
			for _, c := range e.Cells {
				if shape := [2]int{c.Cores, c.Bytes}; !slices.Contains(had, shape) {
					had = append(had, shape)
				}
			}
		}
		slices.SortFunc(had, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
		for _, shape := range had {
			if !yield(shape[0], shape[1]) {
				return
			}
		}
	}
}

// cell returns the cell of a number of cores and a size, nil where there is none.
func (e *Entry) cell(cores, size int) *Cell {
	for _, c := range e.Cells {
		if c.Cores == cores && c.Bytes == size {
			return c
		}
	}
	return nil
}

// Document returns the report for files.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("receive", "Ways to receive",
		"Packets a second that a process takes from an interface, by the way in which it does, "+
			"the size of frames and the cores that receive; what is lost, what a packet costs.")
	d.Set("window", fmt.Sprintf("%d ms", r.WindowMS))
	d.Set("packets/s sent, 0 as many as go", fmt.Sprint(r.Rate))
	drawn := map[string]*report.Chart{}
	for _, f := range charts {
		for cores := range r.shapes() {
			id := fmt.Sprintf("receive-%s-%d", f.id, cores)
			if drawn[id] == nil {
				drawn[id] = d.Chart(report.Chart{ID: id, Kind: report.Line, Better: f.better,
					Title: fmt.Sprintf("%s, cores: %d", f.title, cores),
					X:     report.Axis{Label: "bytes of a frame"},
					Y:     report.Axis{Label: f.label, Unit: f.unit}})
			}
		}
	}
	for _, e := range r.Ways {
		if e.Missing != "" {
			d.Refuse(e.Name, e.Missing)
		}
		for _, c := range e.Cells {
			if c.Taken == nil {
				d.Refuse(e.Name+", "+c.name(), strings.Join(c.Why, "; "))
			}
			for _, f := range charts {
				chart := drawn[fmt.Sprintf("receive-%s-%d", f.id, c.Cores)]
				if c.Taken == nil {
					chart.Add(e.Name, report.Gap(float64(c.Bytes), strings.Join(c.Why, "; ")))
					continue
				}
				chart.Add(e.Name, report.Measured(float64(c.Bytes), c.rounds(f.of)).
					Bound(f.id == "taken" && c.AtLeast))
			}
		}
	}
	return d
}

// Raw returns the report with all windows.
func (r *Report) Raw() any { return r }
