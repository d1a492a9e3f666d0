package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s, %s MHz, %d cores; Linux %s\n", r.Machine.CPU, r.Machine.MHz, r.Machine.Cores, r.Machine.Kernel)
	fmt.Fprintf(w, "%d rounds of %d ms after %d ms of warm-up; one core receives; half of the packets each:\n", r.Rounds, r.WindowMS, r.WarmupMS)
	for _, t := range r.Traffic {
		fmt.Fprintf(w, "  %s\n", t.What)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "rung\tMpps\t95 % interval\tns/packet\tof xdp drop\tlevee does\t")
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
		return g.Name + "\t-\t-\t-\t-\t-\t"
	}
	atLeast := ""
	if g.AtLeast {
		atLeast = ">="
	}
	of, does := "-", "-"
	if g.ToXDPDrop != nil {
		of = g.ToXDPDrop.String()
	}
	if g.ToLevee != nil {
		inverse := Ratio{Median: 1 / g.ToLevee.Median, Bound: map[string]string{"at least": "at most", "at most": "at least"}[g.ToLevee.Bound]}
		if g.ToLevee.Bound == "unknown" {
			inverse.Bound = "unknown"
		}
		does = inverse.String() + "x"
	}
	return fmt.Sprintf("%s\t%s%.2f\t%.2f-%.2f\t%.0f\t%s\t%s\t", g.Name, atLeast, *g.MedianPPS/1e6, g.Interval[0]/1e6, g.Interval[1]/1e6, *g.NsPerPacket, of, does)
}

func (r Ratio) String() string {
	sign := map[string]string{"at least": ">=", "at most": "<=", "unknown": "~"}[r.Bound]
	return fmt.Sprintf("%s%.2f", sign, r.Median)
}
