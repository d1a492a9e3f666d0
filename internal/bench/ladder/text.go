package ladder

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"levee/internal/bench"
)

// Text prints the report for a person: a table for each family, fastest first.
func (r *Report) Text(w io.Writer) error {
	head := r.Head
	head.Incomplete = "" // said in other words, before all else
	t := head.Text("", "")
	if r.Interrupted {
		rest := t.String()
		t.Reset()
		t.Printf("INCOMPLETE: the run was interrupted; this is what was measured until then\n%s",
			rest)
	}
	t.Printf("%d rounds of %d ms a flood after %d ms of warm-up; one core receives; as many "+
		"packets of each flood\n", r.Rounds, r.WindowMS, r.WarmupMS)
	if r.CoreDistance > 0 {
		t.Printf("a cache line takes %.0f ns from one core to the other and back: compare with "+
			"runs of which this is the same\n", r.CoreDistance)
	}
	if r.CoreWork > 0 {
		t.Printf("an operation takes %.3f ns on these cores while nobody shares them, %.3f in "+
			"the median window: compare with runs of which both are the same\n", r.CoreWork,
			r.CoreWorkMedian)
	}
	families := r.families()
	for _, family := range families {
		r.table(t, family)
	}
	t.Printf("\n")
	for _, g := range r.Rungs {
		g.remarks(t, families)
	}
	t.Printf("ns, cycles, and what is compared by them: run time of receiver and application for " +
		"a packet; >= at least, the generator was the limit\n")
	t.Printf("places: one more than those that are certainly faster; = the interval of ns " +
		"overlaps that of another, and their order is not known\n")
	return t.End(w, &r.Head)
}

// table prints the figures of a family.
func (r *Report) table(t *bench.Text, family string) {
	t.Printf("\n")
	for _, traffic := range r.Traffic {
		if traffic.Family == family {
			t.Printf("%s\n", traffic.What)
		}
	}
	t.Table(0, func(w io.Writer) {
		fmt.Fprintln(w, "\trung\tMpps\t95 % interval\tns\tof xdp drop\t95 % interval\tby "+
			"medians\tof xdp read\tlevee does\tcycles\tCPU\tapplication")
		for _, g := range r.sorted(family) {
			f := g.of(family)
			fmt.Fprintln(w, f.place()+"\t"+g.Name+"\t"+f.row())
		}
	})
}

// sorted returns the rungs by the time that a packet costs, as the ratios are (least third of
// rounds), which also tells those apart that the generator could not saturate; those without a
// figure come last.
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

// place returns the rung's place in the order, with "=" where another may have it as well; empty if
// there is none.
func (f *Figures) place() string {
	switch {
	case f == nil || f.Rank == 0:
		return ""
	case f.RankShared:
		return fmt.Sprintf("%d=", f.Rank)
	}
	return fmt.Sprint(f.Rank)
}

// row returns the cells of a line of the table.
func (f *Figures) row() string {
	if f == nil || f.MedianPPS == nil {
		return "no figure"
	}
	atLeast := ""
	if f.AtLeast {
		atLeast = ">="
	}
	cells := []string{atLeast + mpps(*f.MedianPPS), "-", fmt.Sprintf("%.0f", *f.NsPerPacket), "-",
		"-", "-", "-", "-", "-", "-", "-"}
	if f.Interval != nil {
		cells[1] = mpps(f.Interval[0]) + "-" + mpps(f.Interval[1])
	}
	if x := f.ToXDPDrop; x != nil {
		cells[3], cells[5] = fmt.Sprintf("%.3f", x.Least), fmt.Sprintf("%.3f", x.Busy)
		if i := x.LeastInterval; i != nil {
			cells[4] = fmt.Sprintf("%.3f-%.3f", i[0], i[1])
		}
	}
	if x := f.ToXDPRead; x != nil {
		cells[6] = fmt.Sprintf("%.3f", x.Least)
	}
	if l := f.ToLevee; l != nil {
		cells[7] = fmt.Sprintf("%.2f x", 1/l.Least)
	}
	if f.CyclesPerPacket != nil {
		cells[8] = fmt.Sprintf("%.0f", *f.CyclesPerPacket)
	}
	if f.ReceivingCPU != nil && f.ApplicationCPU != nil {
		cells[9] = fmt.Sprintf("%.0f+%.0f %%", 100**f.ReceivingCPU, 100**f.ApplicationCPU)
	}
	if f.ReachedPPS != nil {
		cells[10] = mpps(*f.ReachedPPS)
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
func (g *Rung) remarks(t *bench.Text, families []string) {
	t.Printf("%s: %s\n", g.Name, g.What)
	if g.Missing != "" {
		t.Printf("  not measured: %s\n", g.Missing)
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
				t.Printf("  %sno figure: %s\n", head, why)
			} else {
				t.Printf("  %s%d rounds only: %s\n", head, f.GoodRuns, why)
			}
		}
		if f.Displaced != "" && f.Placed < f.GoodRuns {
			t.Printf("  %s%s\n", head, f.Displaced)
		}
		for _, l := range f.Limits {
			t.Printf("  %sat least: %s\n", head, l)
		}
	}
}
