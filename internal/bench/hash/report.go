package hash

import (
	"fmt"
	"io"

	"levee/internal/bench"
	"levee/internal/report"
)

// Report is the outcome.
type Report struct {
	bench.Head
	Functions []*Result
}

// Result is one function.
type Result struct {
	Name, What string
	Bits       int
	Costs      []*Cost
	Quality    Quality
}

// Cost is ns a hash of so many bytes.
type Cost struct {
	Bytes   int
	EBPF    Times
	Go      Times
	Missing string // why there is no figure
}

// Times are ns above the base, one value a round.
type Times struct {
	Stream []float64 // of hashes that the CPU overlaps
	Chain  []float64 // of such that each wait for the one before
}

var caveats = []string{
	"ns above the same loop without a hash; keys and tables stay in the first-level cache",
	"stream: independent hashes, which the CPU overlaps; chain: each key is chosen by the hash " +
		"before. One hash a packet is nearer to the chain",
	"eBPF: levee's own code, the length known when compiled; Go: dchest/siphash, " +
		"dgryski/go-sip13 without its assembly, zeebo/xxh3, twmb/murmur3, hash/crc32, " +
		"crypto/sha256 and levee's own jhash, called through a function value. Both sides gave " +
		"the same hash for the same random keys",
	"chi-square over its degrees of freedom of 65,536 neighbouring flows in 4,096 buckets: 0.93 " +
		"to 1.07 is what random numbers give; avalanche: the worst distance from 50 % of any " +
		"input bit turning any output bit, 4 % is random",
}

// measured returns how many figures there are.
func (r *Report) measured() (n int) {
	for _, f := range r.Functions {
		for _, c := range f.Costs {
			if len(c.Go.Chain) > 0 {
				n++
			}
		}
	}
	return n
}

// ways are the times that a Cost has.
var ways = []struct {
	id, name string
	of       func(*Cost) []float64
}{
	{"ebpf-chain", "eBPF, chain", func(c *Cost) []float64 { return c.EBPF.Chain }},
	{"ebpf-stream", "eBPF, stream", func(c *Cost) []float64 { return c.EBPF.Stream }},
	{"go-chain", "Go, chain", func(c *Cost) []float64 { return c.Go.Chain }},
	{"go-stream", "Go, stream", func(c *Cost) []float64 { return c.Go.Stream }},
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	t := new(bench.Text)
	t.Printf("%s, %s MHz; Linux %s; %d rounds, medians with 95 %% intervals\n", r.Machine.CPU,
		r.Machine.MHz, r.Machine.Kernel, r.Rounds)
	if r.Incomplete != "" {
		t.Printf("INCOMPLETE: %s; these are the rounds until then\n", r.Incomplete)
	}
	t.Table(0, func(w io.Writer) {
		fmt.Fprint(w, "\nns a hash\tbytes")
		for _, way := range ways {
			fmt.Fprintf(w, "\t%s", way.name)
		}
		fmt.Fprintln(w)
		for _, f := range r.Functions {
			for _, c := range f.Costs {
				fmt.Fprintf(w, "%s\t%d", f.Name, c.Bytes)
				for _, way := range ways {
					fmt.Fprintf(w, "\t%s", cell(way.of(c)))
				}
				fmt.Fprintln(w)
			}
		}
		fmt.Fprintln(w, "\nkeys of 16 bytes\tbits\tchi-square, low bits\thigh "+
			"bits\tavalanche, worst")
		for _, f := range r.Functions {
			fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.0f %%\n", f.Name, f.Bits, f.Quality.Low,
				f.Quality.High, f.Quality.Avalanche*100)
		}
	})
	t.Printf("\n")
	for _, f := range r.Functions {
		t.Printf("%s: %s\n", f.Name, f.What)
		for _, c := range f.Costs {
			if c.Missing != "" {
				t.Printf("  %d bytes: no figure: %s\n", c.Bytes, c.Missing)
			}
		}
	}
	return t.End(w, &r.Head)
}

// cell returns a median with its interval, of six rounds or more.
func cell(rounds []float64) string {
	if len(rounds) == 0 {
		return "-"
	}
	m, lo, hi := report.Summary(rounds)
	if len(rounds) < bench.MinRounds {
		return fmt.Sprintf("%.1f (no interval)", m)
	}
	return fmt.Sprintf("%.1f (%.1f-%.1f)", m, lo, hi)
}

// Document returns the report for files: a chart for each way of timing, and a table of all
// figures.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("hash", "What a hash of a flow's key costs",
		"ns a hash in eBPF and in Go, above the same loop without one, by the length of the key.")
	for _, way := range ways {
		c := d.Chart(report.Chart{
			ID: "hash-" + way.id, Title: "A hash: " + way.name,
			X: report.Axis{Label: "length of the key", Unit: "bytes"},
			Y: report.Axis{Label: "a hash, above the loop", Unit: "ns"}, Better: report.Less,
		})
		for _, f := range r.Functions {
			for _, cost := range f.Costs {
				p := report.Measured(float64(cost.Bytes), way.of(cost))
				if cost.Missing != "" {
					p = report.Gap(float64(cost.Bytes), cost.Missing)
				}
				c.Add(f.Name, p)
			}
		}
	}
	t := d.Table("hash-quality", "How well they spread keys of 16 bytes",
		report.Column{Name: "function"}, report.Column{Name: "what"},
		report.Column{Name: "bits"}, report.Column{Name: "chi-square over degrees of freedom, " +
			"low bits"},
		report.Column{Name: "high bits"}, report.Column{Name: "avalanche, worst", Unit: "%"})
	for _, f := range r.Functions {
		t.Row(report.Text(f.Name), report.Text(f.What), report.Number(float64(f.Bits)),
			report.Number(f.Quality.Low),
			report.Number(f.Quality.High), report.Number(f.Quality.Avalanche*100))
		for _, c := range f.Costs {
			if c.Missing != "" {
				d.Refuse(fmt.Sprintf("%s of %d bytes", f.Name, c.Bytes), c.Missing)
			}
		}
	}
	return d
}
