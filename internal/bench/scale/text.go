package scale

import (
	"fmt"
	"io"
	"text/tabwriter"

	"levee/internal/bench/workload"
	"levee/internal/host"
)

func heading(w io.Writer, m *host.Info, rounds int, incomplete string, c *Conditions) {
	fmt.Fprintf(w, "%s, %s MHz, %d cores; Linux %s; %d rounds, medians with 95 %% intervals\n", m.CPU, m.MHz, m.Cores, m.Kernel, rounds)
	if incomplete != "" {
		fmt.Fprintf(w, "INCOMPLETE: %s; these are the figures until then\n", incomplete)
	}
	c.text(w)
}

// Text prints the report for a person.
func (r *SetsReport) Text(w io.Writer) error {
	heading(w, &r.Machine, r.Rounds, r.Incomplete, r.Conditions)
	for _, c := range r.Cases {
		fmt.Fprintf(w, "\n%d %s %s\n", c.Size, c.Family, c.Entries)
		if len(c.Structures) > 0 {
			if err := c.textLookups(w); err != nil {
				return err
			}
		}
		if err := textTools(w, c.Lab); err != nil {
			return err
		}
	}
	return ending(w, r.Caveats, r.Command)
}

func (c *SetCase) textLookups(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  ns a look-up: stream/chain\thit\tmiss\tmix\tmix, Zipf\tbytes/entry\tbuild\tload\tone change")
	for _, s := range c.Structures {
		if s.Missing != "" {
			continue
		}
		fmt.Fprintf(t, "  %s", s.Name)
		for _, k := range traffics {
			fmt.Fprintf(t, "\t%s", s.Lookup(k.kind, k.skew).cell())
		}
		fmt.Fprintf(t, "\t%.1f\t%s\t%s\t%s\n", s.PerEntry, nanos(s.BuildNs), nanos(s.LoadNs), nanos(s.UpdateNs))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range c.Structures {
		if s.Missing != "" {
			fmt.Fprintf(w, "  %s: no figure: %s\n", s.Name, s.Missing)
			continue
		}
		for _, kind := range []workload.Kind{workload.Hits, workload.Mix} {
			if l := s.Lookup(kind, workload.Uniform); l != nil && l.TimesLevee != 0 && s.Name != structures[0].name {
				fmt.Fprintf(w, "  %s takes %.1f (%.1f-%.1f) times as long as %s for a %s of a stream\n", s.Name, l.TimesLevee, l.TimesLeveeInterval[0], l.TimesLeveeInterval[1], structures[0].name, kind)
			}
		}
	}
	return nil
}

func (l *Lookup) cell() string {
	if l == nil || l.Stream == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f (%.1f-%.1f)/%.1f", l.Stream.Median, l.Stream.Interval[0], l.Stream.Interval[1], l.Chain.Median)
}

// textTools prints what the lab measured.
func textTools(w io.Writer, tools []*Tool) error {
	if len(tools) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  in the lab\tMpps\t95 % interval\tns/packet\tload\tone change\tadds/s\tmemory")
	for _, x := range tools {
		if x.MedianPPS == nil {
			continue
		}
		atLeast := ""
		if x.AtLeast {
			atLeast = ">="
		}
		adds := "-"
		if x.AddsPerSec != nil {
			adds = fmt.Sprintf("%.0f", x.AddsPerSec.Median)
		}
		interval := "-" // of too few rounds
		if x.Interval != nil {
			interval = fmt.Sprintf("%.3g-%.3g", x.Interval[0]/1e6, x.Interval[1]/1e6)
		}
		fmt.Fprintf(t, "  %s\t%s%.3g\t%s\t%.0f\t%s\t%s\t%s\t%s\n", x.Name, atLeast, *x.MedianPPS/1e6, interval,
			*x.NsPerPacket, x.LoadNs.cell(), x.UpdateNs.cell(), adds, size(x.Bytes))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, x := range tools {
		if x.Missing != "" {
			fmt.Fprintf(w, "  %s: not measured: %s\n", x.Name, x.Missing)
		}
		for _, why := range x.Why {
			fmt.Fprintf(w, "  %s: no figure: %s\n", x.Name, why)
		}
	}
	return nil
}

func (f *Figure) cell() string {
	if f == nil {
		return "-"
	}
	return nanos(f.Median)
}

// Text prints the report for a person.
func (r *RulesReport) Text(w io.Writer) error {
	heading(w, &r.Machine, r.Rounds, r.Incomplete, r.Conditions)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nlevee, %d different packets\tns a packet\t95 %% interval\tchain, ns a load\tZipf\tchain\tresolve\tcompile\tload\tmemory\n", r.Frames)
	for _, c := range r.Cases {
		if p := c.Levee; p != nil && p.Missing == "" {
			fmt.Fprintf(t, "%d %s\t%.1f\t%.1f-%.1f\t%s\t%.1f\t%s\t%s\t%s\t%s\t%s\n", c.Size, c.Shape, p.Uniform.Median, p.Uniform.Interval[0], p.Uniform.Interval[1],
				p.Conditions.cell(), p.Zipf.Median, p.ZipfConditions.cell(), nanos(float64(p.ResolveNs)), nanos(float64(p.CompileNs)), nanos(float64(p.LoadNs)), size(int64(p.Bytes)))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Cases {
		if c.Levee != nil && c.Levee.Missing != "" {
			fmt.Fprintf(w, "%d %s: no figure: %s\n", c.Size, c.Shape, c.Levee.Missing)
		}
		if len(c.Lab) > 0 {
			fmt.Fprintf(w, "\n%d %s rules\n", c.Size, c.Shape)
			if err := textTools(w, c.Lab); err != nil {
				return err
			}
		}
	}
	return ending(w, r.Caveats, r.Command)
}

func ending(w io.Writer, caveats []string, command string) error {
	fmt.Fprintln(w)
	for _, c := range caveats {
		fmt.Fprintln(w, c)
	}
	_, err := fmt.Fprintf(w, "repeat: %s\n", command)
	return err
}

// nanos is a time with three digits.
func nanos(ns float64) string {
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

// size is bytes with three digits.
func size(n int64) string {
	switch {
	case n < 100<<10:
		return "<100 KB"
	case n < 1<<20:
		return fmt.Sprintf("%d KB", n>>10)
	}
	return fmt.Sprintf("%.3g MB", float64(n)/(1<<20))
}
