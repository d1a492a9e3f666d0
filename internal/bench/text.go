package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s, %s MHz, %d cores; Linux %s\n", r.Machine.CPU, r.Machine.MHz, r.Machine.Cores, r.Machine.Kernel)
	fmt.Fprintf(w, "%d rounds of %d ms a flood after %d ms of warm-up; one core receives; as many packets of each flood:\n", r.Rounds, r.WindowMS, r.WarmupMS)
	for _, t := range r.Traffic {
		fmt.Fprintf(w, "  %s\n", t.What)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "rung\tMpps\t95 % interval\tns/packet\tof xdp drop\tby ns\tlevee does\tby ns")
	for _, g := range r.Rungs {
		fmt.Fprintln(t, g.row())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, g := range r.Rungs {
		fmt.Fprintf(w, "%s: %s\n", g.Name, g.What)
		if g.Missing != "" {
			fmt.Fprintf(w, "  not measured: %s\n", g.Missing)
		}
		for _, why := range g.Why {
			fmt.Fprintf(w, "  no figure: %s\n", why)
		}
		if g.AtLeast {
			fmt.Fprintln(w, "  at least: the generator was the limit in some windows, not this rung")
		}
	}
	for _, c := range r.Caveats {
		fmt.Fprintln(w, c)
	}
	_, err := fmt.Fprintf(w, "repeat: %s\n", r.Command)
	return err
}

// row is a line of the table.
func (g *Rung) row() string {
	if g.MedianPPS == nil {
		return g.Name + "\tno figure"
	}
	atLeast := ""
	if g.AtLeast {
		atLeast = ">="
	}
	cells := []string{g.Name, fmt.Sprintf("%s%.2f", atLeast, *g.MedianPPS/1e6),
		fmt.Sprintf("%.2f-%.2f", g.Interval[0]/1e6, g.Interval[1]/1e6), fmt.Sprintf("%.0f", *g.NsPerPacket)}
	if x := g.ToXDPDrop; x != nil {
		cells = append(cells, sign[x.Bound]+fmt.Sprintf("%.2f", x.Median), fmt.Sprintf("%.2f", x.Busy))
	} else {
		cells = append(cells, "-", "-")
	}
	if l := g.ToLevee; l != nil {
		cells = append(cells, sign[inverse[l.Bound]]+fmt.Sprintf("%.2f x", 1/l.Median), fmt.Sprintf("%.2f x", 1/l.Busy))
	}
	return strings.Join(cells, "\t")
}

// sign marks a bound, inverse is that of 1/ratio.
var (
	sign    = map[string]string{"at least": ">=", "at most": "<=", "unknown": "~"}
	inverse = map[string]string{"at least": "at most", "at most": "at least", "unknown": "unknown"}
)
