package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Text prints the report for a person: a table for each family, fastest first.
func (r *Report) Text(w io.Writer) error {
	if r.Incomplete {
		fmt.Fprintln(w, "INCOMPLETE: the run was interrupted; this is what was measured until then")
	}
	fmt.Fprintf(w, "%s, %s MHz, %d cores; Linux %s\n", r.Machine.CPU, r.Machine.MHz, r.Machine.Cores, r.Machine.Kernel)
	fmt.Fprintf(w, "%d rounds of %d ms a flood after %d ms of warm-up; one core receives; as many packets of each flood\n", r.Rounds, r.WindowMS, r.WarmupMS)
	if r.CoreDistance > 0 {
		fmt.Fprintf(w, "a cache line takes %.0f ns from one core to the other and back: compare with runs of which this is the same\n", r.CoreDistance)
	}
	if r.CoreWork > 0 {
		fmt.Fprintf(w, "an operation takes %.3f ns on these cores while nobody shares them, %.3f in the median window: compare with runs of which both are the same\n", r.CoreWork, r.CoreWorkMedian)
	}
	families := r.families()
	for _, family := range families {
		if err := r.table(w, family); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, g := range r.Rungs {
		g.remarks(w, families)
	}
	fmt.Fprintln(w, "ns, cycles, and what is compared by them: run time of receiver and application for a packet; >= at least, the generator was the limit")
	fmt.Fprintln(w, "places: one more than those that are certainly faster; = the interval of ns overlaps that of another, and their order is not known")
	for _, c := range r.Caveats {
		fmt.Fprintln(w, c)
	}
	_, err := fmt.Fprintf(w, "repeat: %s\n", r.Command)
	return err
}

// table prints the figures of a family.
func (r *Report) table(w io.Writer, family string) error {
	fmt.Fprintln(w)
	for _, t := range r.Traffic {
		if t.Family == family {
			fmt.Fprintf(w, "%s\n", t.What)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\trung\tMpps\t95 % interval\tns\tof xdp drop\t95 % interval\tby medians\tlevee does\tcycles\tCPU\tapplication")
	for _, g := range r.sorted(family) {
		f := g.of(family)
		fmt.Fprintln(t, f.place()+"\t"+g.Name+"\t"+f.row())
	}
	return t.Flush()
}

// sorted is the rungs by the time that a packet costs, as the ratios are (least third of rounds), which also tells those apart that the
// generator could not saturate; those without a figure come last.
func (r *Report) sorted(family string) []*Rung {
	key := func(g *Rung) float64 {
		if f := g.of(family); f != nil && f.NsLeast != nil {
			return *f.NsLeast
		}
		return math.Inf(1)
	}
	out := slices.Clone(r.Rungs)
	slices.SortStableFunc(out, func(a, b *Rung) int { return cmp.Compare(key(a), key(b)) })
	return out
}

// place is the rung's place in the order, with "=" where another may have it as well; empty if there is none.
func (f *Figures) place() string {
	switch {
	case f == nil || f.Rank == 0:
		return ""
	case f.RankShared:
		return fmt.Sprintf("%d=", f.Rank)
	}
	return fmt.Sprint(f.Rank)
}

// row is the cells of a line of the table.
func (f *Figures) row() string {
	if f == nil || f.MedianPPS == nil {
		return "no figure"
	}
	atLeast := ""
	if f.AtLeast {
		atLeast = ">="
	}
	cells := []string{atLeast + mpps(*f.MedianPPS), "-", fmt.Sprintf("%.0f", *f.NsPerPacket), "-", "-", "-", "-", "-", "-", "-"}
	if f.Interval != nil {
		cells[1] = mpps(f.Interval[0]) + "-" + mpps(f.Interval[1])
	}
	if x := f.ToXDPDrop; x != nil {
		cells[3], cells[5] = fmt.Sprintf("%.3f", x.Least), fmt.Sprintf("%.3f", x.Busy)
		if i := x.LeastInterval; i != nil {
			cells[4] = fmt.Sprintf("%.3f-%.3f", i[0], i[1])
		}
	}
	if l := f.ToLevee; l != nil {
		cells[6] = fmt.Sprintf("%.2f x", 1/l.Least)
	}
	if f.CyclesPerPacket != nil {
		cells[7] = fmt.Sprintf("%.0f", *f.CyclesPerPacket)
	}
	if f.ReceivingCPU != nil && f.ApplicationCPU != nil {
		cells[8] = fmt.Sprintf("%.0f+%.0f %%", 100**f.ReceivingCPU, 100**f.ApplicationCPU)
	}
	if f.ReachedPPS != nil {
		cells[9] = mpps(*f.ReachedPPS)
	}
	return strings.Join(cells, "\t")
}

func mpps(pps float64) string {
	if pps == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2f", pps/1e6)
}

// remarks prints what a rung is and what has to be said of its figures.
func (g *Rung) remarks(w io.Writer, families []string) {
	fmt.Fprintf(w, "%s: %s\n", g.Name, g.What)
	if g.Missing != "" {
		fmt.Fprintf(w, "  not measured: %s\n", g.Missing)
	}
	for _, family := range families {
		f := g.of(family)
		if f == nil {
			continue
		}
		head := ""
		if family != "" {
			head = family + ": "
		}
		for _, why := range f.Why {
			if f.MedianPPS == nil {
				fmt.Fprintf(w, "  %sno figure: %s\n", head, why)
			} else {
				fmt.Fprintf(w, "  %s%d rounds only: %s\n", head, f.GoodRuns, why)
			}
		}
		if f.Displaced != "" && f.placed < f.GoodRuns {
			fmt.Fprintf(w, "  %s%s\n", head, f.Displaced)
		}
		for _, l := range f.Limits {
			fmt.Fprintf(w, "  %sat least: %s\n", head, l)
		}
	}
}
