package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"levee/internal/host"
	"levee/internal/report"
)

// Report is the result of a measurement, for its command. One that has fields of its own as JSON
// has a method Raw() any, too.
type Report interface {
	Text(io.Writer) error
	Document() *report.Document
}

// Head is the part that all reports have besides their figures. As JSON it is a part of those
// reports that have fields of their own; names of fields stay once shipped.
type Head struct {
	Started time.Time `json:"started"`
	Command string    `json:"command"` // to repeat it
	Quick   bool      `json:"quick"`   // not to be quoted
	Rounds  int       `json:"rounds"`
	Seed    uint64    `json:"seed"`
	Machine host.Info `json:"machine"`
	Caveats []string  `json:"caveats"`
	// Incomplete is the reason that the measurement ended early, empty if it did not.
	Incomplete string `json:"incomplete,omitempty"`
}

// Caveats of several measurements.
const (
	VethCaveat = "veth has no DMA and no descriptors: ratios carry over to other machines, " +
		"absolute figures do not"
	quickCaveat = "--quick: short windows, for a look; quote a run without it"
)

// Head begins a report. Frequency and governor of the machine are those of a core.
func (o *Options) Head(cpu int, caveats ...string) Head {
	return Head{
		Started: time.Now().UTC().Truncate(time.Second), Command: o.Command, Quick: o.Quick,
		Rounds: o.Rounds, Seed: o.Seed,
		Machine: host.Fingerprint(cpu), Caveats: slices.Clone(caveats),
	}
}

// WarnOfQuick adds the caveat of short windows to the report of a quick run.
func (h *Head) WarnOfQuick() {
	if h.Quick {
		h.Caveats = append(h.Caveats, quickCaveat)
	}
}

// Document begins the report for files. Rounds, of a measurement that has some, and seed are set:
// what two runs must have in common. The measurement adds the rest.
func (h *Head) Document(name, title, what string) *report.Document {
	d := &report.Document{
		Bench: name, Title: title, What: what, Command: h.Command, Started: h.Started,
		Incomplete: h.Incomplete, Machine: h.Machine, Notes: slices.Clone(h.Caveats),
	}
	if h.Rounds > 0 {
		d.Set("rounds", fmt.Sprint(h.Rounds))
	}
	d.Set("seed", fmt.Sprint(h.Seed))
	return d
}

// Text is a report for a person while it is written.
type Text struct{ strings.Builder }

// Text begins with the machine, and behind it more in the same line; and says if the report is
// incomplete, with what follows that.
func (h *Head) Text(more, incomplete string) *Text {
	t := new(Text)
	m := &h.Machine
	t.Printf("%s, %s MHz, %d cores; Linux %s%s\n", m.CPU, m.MHz, m.Cores, m.Kernel, more)
	if h.Incomplete != "" {
		t.Printf("INCOMPLETE: %s%s\n", h.Incomplete, incomplete)
	}
	return t
}

// Printf appends.
func (t *Text) Printf(format string, args ...any) { fmt.Fprintf(t, format, args...) }

// Table appends rows of cells that end in tabs, or to the left of which a tab stands, in columns.
// flags are those of package tabwriter.
func (t *Text) Table(flags uint, rows func(w io.Writer)) {
	w := tabwriter.NewWriter(t, 0, 0, 2, ' ', flags)
	rows(w)
	_ = w.Flush() // into memory
}

// Refusals appends what has no figure.
func (t *Text) Refusals(list []report.Refusal) {
	for _, r := range list {
		t.Printf("%s: %s\n", r.What, r.Why)
	}
}

// End appends the caveats and how to repeat the measurement, and writes the text.
func (t *Text) End(w io.Writer, h *Head) error {
	for _, c := range h.Caveats {
		t.Printf("%s\n", c)
	}
	t.Printf("repeat: %s\n", h.Command)
	_, err := io.WriteString(w, t.String())
	return err
}

// Nanos returns a time with three digits.
func Nanos(ns float64) string {
	switch {
	case ns <= 0:
		return "-"
	case ns < 1e3:
		return fmt.Sprintf("%.3g ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.3g us", ns/1e3)
	case ns < 1e9:
		return fmt.Sprintf("%.3g ms", ns/1e6)
	}
	return fmt.Sprintf("%.3g s", ns/1e9)
}

// Size returns bytes with three digits.
func Size(n int64) string {
	switch {
	case n < 100<<10:
		return "<100 KB"
	case n < 1<<20:
		return fmt.Sprintf("%d KB", n>>10)
	}
	return fmt.Sprintf("%.3g MB", float64(n)/(1<<20))
}
