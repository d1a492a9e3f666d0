package wrap

import (
	"fmt"
	"io"

	"levee/internal/bench"
	"levee/internal/report"
)

// Report is the document of `levee bench wrap --json`; names of fields stay once shipped.
type Report struct {
	bench.Head
	WindowSecs float64 `json:"window_seconds"`
	Cases      []*Case `json:"cases"`
}

// Case is one size of packets.
type Case struct {
	MTU     int       `json:"mtu"`
	Results []*Result `json:"results"` // without a policy first
}

// Result is a service with a policy, or without.
type Result struct {
	Way   string `json:"way"`   // of Ways, or "none"
	Rules int    `json:"rules"` // 0 of none
	// Bits a second that the service has taken, and Share of what the one without a policy has in
	// the same round.
	Bits  *bench.Figure `json:"bits_per_second"`
	Share *bench.Figure `json:"share"`
	// Judged is packets a second, and PacketBytes their mean size, as the policy counts them.
	Judged      *bench.Figure `json:"judged_per_second"`
	PacketBytes float64       `json:"packet_bytes"`
	Why         string        `json:"missing,omitempty"` // why there is no share
	Rounds      []float64     `json:"rounds"`            // bits a second
	Shares      []float64     `json:"shares"`

	judged         []float64
	bytes, packets uint64
}

func (r *Result) add(bits, judged float64, bytes, packets uint64) {
	r.Rounds, r.judged = append(r.Rounds, bits), append(r.judged, judged)
	r.bytes, r.packets = r.bytes+bytes, r.packets+packets
}

// finish draws together what was measured, beside what has no policy.
func (r *Result) finish(none *Result) {
	r.Shares = []float64{}
	r.Bits = bench.FigureOf(r.Rounds)
	if r.packets > 0 {
		r.PacketBytes = float64(r.bytes) / float64(r.packets)
	}
	if r.Way == None {
		return
	}
	// a run that was interrupted has not measured both in its last round
	for i, bits := range r.Rounds[:min(len(r.Rounds), len(none.Rounds))] {
		switch {
		case r.judged[i] == 0:
			r.Why = "the policy has judged no packet of a round"
		case none.Rounds[i] == 0:
			r.Why = "nothing came without a policy in a round"
		default:
			r.Shares = append(r.Shares, bits/none.Rounds[i])
		}
	}
	if r.Why == "" {
		r.Share, r.Judged = bench.FigureOf(r.Shares), bench.FigureOf(r.judged)
	}
}

var caveats = []string{
	"one TCP connection over the loopback of a network namespace, segmentation left to no " +
		"hardware: each packet of the MTU is judged for itself; sender, kernel and service share " +
		"the machine's cores",
	"rules are of the shape fw of ClassBench; none but the last, which passes, matches the " +
		"connection; what the service sends is not judged",
	"a share is of what the service without a policy takes in the same round",
	"at the cgroup: as levee wrap unit and container; at the sockets: as levee wrap run",
}

// goal is the share that a service is to keep.
const goal = 0.8

// Below returns the policies with which a service takes less than its share is to be, by all of the
// interval, and those of whose shares the interval goes over that: they do not tell.
func (r *Report) Below() (less, untold []string) {
	for _, c := range r.Cases {
		for _, x := range c.Results {
			name := fmt.Sprintf("MTU %d, %s, %d rules", c.MTU, x.Way, x.Rules)
			switch {
			case x.Share == nil:
			case x.Share.Interval[1] < goal:
				less = append(less, name)
			case x.Share.Interval[0] < goal:
				untold = append(untold, name)
			}
		}
	}
	return less, untold
}

// Lacking returns the policies without a share.
func (r *Report) Lacking() (all []string) {
	for _, c := range r.Cases {
		for _, x := range c.Results {
			if x.Way != None && x.Share == nil {
				all = append(all, fmt.Sprintf("MTU %d, %s, %d rules", c.MTU, x.Way, x.Rules))
			}
		}
	}
	return all
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	t := r.Head.Text(fmt.Sprintf("; %d rounds of %g s, medians with 95 %% intervals", r.Rounds,
		r.WindowSecs), "; these are the figures until then")
	t.Table(0, func(w io.Writer) {
		fmt.Fprintln(w, "\nMTU\tpolicy\trules\tGbit/s\t95 % interval\tof none\t95 % interval\t"+
			"judged a second\tbytes each")
		for _, c := range r.Cases {
			for _, x := range c.Results {
				x.row(w, c.MTU)
			}
		}
	})
	for _, c := range r.Cases {
		for _, x := range c.Results {
			if x.Why != "" {
				t.Printf("MTU %d, %s, %d rules: no figure: %s\n", c.MTU, x.Way, x.Rules, x.Why)
			}
		}
	}
	less, untold := r.Below()
	for _, below := range less {
		t.Printf("%s: less than %.0f %% of none\n", below, 100*goal)
	}
	for _, name := range untold {
		t.Printf("%s: the interval does not tell whether it is %.0f %% of none or more\n", name,
			100*goal)
	}
	t.Printf("\n")
	return t.End(w, &r.Head)
}

func (r *Result) row(w io.Writer, mtu int) {
	if r.Bits == nil {
		return
	}
	fmt.Fprintf(w, "%d\t%s\t%d\t%.2f\t%.2f-%.2f\t", mtu, r.Way, r.Rules, r.Bits.Median/1e9,
		r.Bits.Interval[0]/1e9, r.Bits.Interval[1]/1e9)
	if r.Share == nil {
		fmt.Fprintln(w, "-\t-\t-\t-")
		return
	}
	fmt.Fprintf(w, "%.1f %%\t%.1f-%.1f\t%.0f\t%.0f\n", 100*r.Share.Median,
		100*r.Share.Interval[0], 100*r.Share.Interval[1], r.Judged.Median, r.PacketBytes)
}

// Raw returns the report as JSON.
func (r *Report) Raw() any { return r }

// Document returns the report for files: charts of throughput and of its share by the number of
// rules.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("wrap", "A service with a policy of its own",
		"Throughput of TCP to a service with a policy at its cgroup or its sockets, against that "+
			"without one, by the number of rules and the size of packets.")
	d.Set("window", fmt.Sprintf("%g s", r.WindowSecs))
	share := d.Chart(report.Chart{ID: "wrap-share", Title: "Throughput, of that without a policy",
		X: report.Axis{Label: "rules", Log: true}, Y: report.Axis{Label: "share", Unit: "%"},
		Better: report.More})
	bits := d.Chart(report.Chart{ID: "wrap-throughput", Title: "Throughput",
		X: report.Axis{Label: "MTU", Unit: "bytes", Log: true},
		Y: report.Axis{Label: "taken by the service", Unit: "bit/s"}, Better: report.More})
	for _, c := range r.Cases {
		for _, x := range c.Results {
			name := x.Way
			if x.Way != None {
				name = fmt.Sprintf("%s, %d rules", x.Way, x.Rules)
			}
			bits.Add(name, report.Measured(float64(c.MTU), x.Rounds))
			if x.Way == None {
				continue
			}
			series := fmt.Sprintf("%s, MTU %d", x.Way, c.MTU)
			if x.Share == nil {
				share.Add(series, report.Gap(float64(x.Rules), x.Why))
				d.Refuse(fmt.Sprintf("%s, %d rules", series, x.Rules), x.Why)
				continue
			}
			var percent []float64
			for _, s := range x.Shares {
				percent = append(percent, 100*s)
			}
			share.Add(series, report.Measured(float64(x.Rules), percent))
		}
	}
	return d
}
