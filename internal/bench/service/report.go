package service

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"levee/internal/lab/demo"
	"levee/internal/packet"
	"levee/internal/report"
)

// phases are the parts of a run, each from when the one before ends.
var phases = []string{"before", "during", "after"}

const during = 1 // in phases

// phase returns the time at which a part of a run begins and ends, in seconds from its beginning.
func (r *Report) phase(run *Once, i int) (from, to float64) {
	ends := []float64{0, run.From, run.To, r.end()}
	from, to = ends[i], ends[i+1]
	if i == during {
		to -= max(0, r.Patience-demo.Patience).Seconds()
	}
	return from, to
}

// row is a flood behind a defence: its runs that have figures, and why others have none.
type row struct {
	*Once // the first
	runs  []*Once
	lacks []string
}

func (r *Report) rows() (rows []*row) {
	type id struct{ flood, defence string }
	by := map[id]*row{}
	for _, run := range r.Runs {
		key := id{run.kind(), run.Defence}
		w := by[key]
		if w == nil {
			w = &row{Once: run}
			by[key], rows = w, append(rows, w)
		}
		if why := r.why(run); why == "" {
			w.runs = append(w.runs, run)
		} else if !slices.Contains(w.lacks, why) {
			w.lacks = append(w.lacks, why)
		}
	}
	var kinds []string // in order of the first run of each
	for _, w := range rows {
		if !slices.Contains(kinds, w.kind()) {
			kinds = append(kinds, w.kind())
		}
	}
	slices.SortStableFunc(rows, func(a, b *row) int {
		return slices.Index(kinds, a.kind()) - slices.Index(kinds, b.kind())
	})
	return rows
}

// sent returns the median of the packets a second that floods had.
func (w *row) sent() float64 {
	var sent []float64
	for _, run := range w.runs {
		sent = append(sent, run.Sent)
	}
	median, _, _ := report.Summary(sent)
	return median
}

// figures of a phase: medians of rounds, shares as parts of 1 and times in seconds.
type figures struct {
	answered, p50, p99 float64
	p99s               []float64 // of each round, ascending
	requests           int       // of all rounds
}

func (r *Report) figures(w *row, phase int) (f figures) {
	var shares, p50s []float64
	for _, run := range w.runs {
		q := run.within(r.phase(run, phase))
		f.requests += len(q)
		if len(q) == 0 {
			continue
		}
		shares = append(shares, answered(q))
		p50s, f.p99s = append(p50s, percentile(q, 50)), append(f.p99s, percentile(q, 99))
	}
	slices.Sort(f.p99s)
	f.answered, _, _ = report.Summary(shares)
	f.p50, _, _ = report.Summary(p50s)
	f.p99, _, _ = report.Summary(f.p99s)
	return f
}

// kind returns the flood, with its family if that is not IPv4.
func (run *Once) kind() string {
	if run.Family == packet.IPv6 {
		return run.Flood + "-ipv6"
	}
	return run.Flood
}

// end of each run.
func (r *Report) end() float64 { return (r.Before + r.During + r.After).Seconds() }

// within returns the requests of a run that were due in a span of time.
func (run *Once) within(from, to float64) (out []Outcome) {
	for _, q := range run.Requests {
		if q.Due >= from && q.Due < to {
			out = append(out, q)
		}
	}
	return out
}

// answered returns the share of requests that were answered, not a number where there were none.
func answered(requests []Outcome) float64 {
	n := 0
	for _, q := range requests {
		if q.Took > 0 {
			n++
		}
	}
	return float64(n) / float64(len(requests))
}

// percentile in seconds; requests without an answer took forever.
func percentile(requests []Outcome, percent float64) float64 {
	var took []float64
	for _, q := range requests {
		if q.Took == 0 {
			q.Took = math.Inf(1)
		}
		took = append(took, q.Took)
	}
	slices.Sort(took)
	if len(took) == 0 {
		return math.Inf(1)
	}
	return took[max(int(math.Ceil(percent/100*float64(len(took)))), 1)-1]
}

var caveats = []string{
	fmt.Sprintf("each request counts from when it was due (an open loop), and fails after %v; "+
		"levee, nft netdev ingress and iptables INPUT have the rules of the demo policy",
		demo.Patience),
	"the demo policy has no limits and no state: it lets ACK to the service's port and echo " +
		"requests pass, as stateless rules of the others do; levee-state is levee with " +
		"examples/service.levee, which keeps connections, answers SYNs and has limits; the " +
		"synproxy rules of the others are for the same service",
	"foreknown is a policy that names the visitors' networks, which no defence can know: latency " +
		"behind it is what the generator takes by sharing its core with the visitors",
	"visitors have been served before the flood, so that levee-state knows their handshakes; a " +
		"cookie has new ones prove themselves with their first request, which takes two ticks of " +
		"their kernel more",
	"receiving comes before the service on the server's core, and before visitors and generator " +
		"on the world's, where the answers to forged SYNs arrive too",
}

// of says what the figures of so many rounds are.
func of(rounds int) string {
	if rounds == 1 {
		return "one run each: the curves show what happens, not how exactly"
	}
	return fmt.Sprintf("medians of %d rounds, and p99 under the flood from its least to its most; "+
		"a round has each flood and defence in turn, every second one backwards", rounds)
}

// milliseconds of a time in seconds, for a person.
func milliseconds(v float64) string {
	if math.IsInf(v, 0) {
		return "-"
	}
	return fmt.Sprintf("%.1f", v*1e3)
}

// quietShare is the share of requests that must be answered before the flood for the rest to say
// anything.
const quietShare = 0.95

// why there is no figure of a run; empty if there is one.
func (r *Report) why(run *Once) string {
	before := run.within(0, run.From)
	switch {
	case run.Missing != "":
		return run.Missing
	case len(before) == 0:
		return "interrupted"
	case r.floodShare > 0 && run.Sent < r.floodShare*r.Rate:
		return fmt.Sprintf("the generator was held up: it sent %s packets/s of %s",
			demo.SI(run.Sent), demo.SI(r.Rate))
	case answered(before) < quietShare:
		return fmt.Sprintf("only %.0f %% of the requests were answered before the flood: "+
			"something else kept this machine busy", 100*answered(before))
	}
	return ""
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	t := r.Head.Text("", "")
	t.Printf("%s, %g %s a second, floods of %s packets/s; %v before, %v of "+
		"flood, %v after\n",
		r.service, r.Requests, r.requests, demo.SI(r.Rate), r.Before, r.During, r.After)
	t.Printf("answered in time, p50 and p99 in ms\n")
	t.Table(0, func(w io.Writer) {
		last := ""
		for _, row := range r.rows() {
			if row.kind() != last {
				fmt.Fprintf(w, "\n%s: %s\n", row.kind(), row.What)
				fmt.Fprintln(w, "\tbefore\tduring\tafter\tflood, packets/s\t")
				last = row.kind()
			}
			fmt.Fprintf(w, "  %s\t", row.Defence)
			if len(row.runs) == 0 {
				fmt.Fprintf(w, "%s\t\n", strings.Join(row.lacks, "; "))
				continue
			}
			for i := range phases {
				f := r.figures(row, i)
				if f.requests == 0 {
					fmt.Fprint(w, "-\t")
					continue
				}
				fmt.Fprintf(w, "%.1f %% (%s, %s", 100*f.answered, milliseconds(f.p50),
					milliseconds(f.p99))
				if n := len(f.p99s); i == during && n > 1 {
					fmt.Fprintf(w, ": %s to %s", milliseconds(f.p99s[0]),
						milliseconds(f.p99s[n-1]))
				}
				fmt.Fprint(w, ")\t")
			}
			fmt.Fprintf(w, "%s\t\n", demo.SI(row.sent()))
		}
	})
	t.Printf("\n")
	return t.End(w, &r.Head)
}

// Complete tells whether each defence that is installed has a figure under each flood, and any is.
func (r *Report) Complete() bool {
	return r.Incomplete == "" && !slices.ContainsFunc(r.Runs,
		func(run *Once) bool { return run.Missing == "" && r.why(run) != "" }) &&
		slices.ContainsFunc(r.Runs, func(run *Once) bool { return run.Missing == "" })
}

// Document returns the report to be drawn: answers and latency by time, for each flood.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("service", strings.ToUpper(r.service[:1])+r.service[1:]+" under floods",
		fmt.Sprintf("%g %s a second to %s, before, during and after floods of %s packets/s, "+
			"behind each defence.", r.Requests, r.requests, r.service, demo.SI(r.Rate)))
	d.Set("requests a second", fmt.Sprint(r.Requests))
	d.Set("flood", demo.SI(r.Rate)+" packets/s")
	d.Set("before, during, after", fmt.Sprintf("%v, %v, %v", r.Before, r.During, r.After))
	t := d.Table("phases", "Before, during, after",
		report.Column{Name: "flood"}, report.Column{Name: "defence"}, report.Column{Name: "phase"},
		report.Column{Name: "answered", Unit: "%"},
		report.Column{Name: "p50", Unit: "ms"}, report.Column{Name: "p99", Unit: "ms"},
		report.Column{Name: "requests"}, report.Column{Name: "p99, times that before"},
		report.Column{Name: "p99, least", Unit: "ms"},
		report.Column{Name: "p99, most", Unit: "ms"},
		report.Column{Name: "flood sent", Unit: "packets/s"})
	charts := map[string][2]*report.Chart{}
	for _, row := range r.rows() {
		for _, why := range row.lacks {
			d.Refuse(row.Defence+", "+row.kind()+" flood", why)
		}
		if len(row.runs) == 0 {
			continue
		}
		pair, ok := charts[row.kind()]
		if !ok {
			pair = r.charts(d, row.Once)
			charts[row.kind()] = pair
		}
		r.curves(row, pair)
		quiet := r.figures(row, 0).p99
		if math.IsInf(quiet, 0) {
			quiet = math.NaN() // nothing is a multiple of it
		}
		for i, name := range phases {
			f := r.figures(row, i)
			t.Row(report.Text(row.kind()), report.Text(row.Defence), report.Text(name),
				report.Number(100*f.answered),
				report.Number(1e3*f.p50), report.Number(1e3*f.p99),
				report.Number(float64(f.requests)), report.Number(f.p99/quiet),
				report.Number(1e3*f.p99s[0]), report.Number(1e3*f.p99s[len(f.p99s)-1]),
				report.Number(row.sent()))
		}
	}
	return d
}

// charts makes the two pictures of a flood.
func (r *Report) charts(d *report.Document, run *Once) [2]*report.Chart {
	flood := []report.Mark{{From: run.From, To: run.To, Label: run.What}}
	time := report.Axis{Label: "time", Unit: "s"}
	id, of := report.FileName(run.kind()), ", "+run.kind()+" flood"
	return [2]*report.Chart{
		d.Chart(report.Chart{
			ID: id + "-goodput", Title: "Answered" + of,
			Kind: report.Time, X: time, Marks: flood,
			Y: report.Axis{Label: "answered requests", Unit: "requests/s"}, Better: report.More,
		}),
		d.Chart(report.Chart{
			ID: id + "-latency", Title: "Latency (p99)" + of,
			Kind: report.Time, X: time, Marks: flood,
			Y: report.Axis{Label: "latency", Unit: "ms", Log: true}, Better: report.Less,
		}),
	}
}

// curves draws all rounds, a point for each bucket.
func (r *Report) curves(w *row, pair [2]*report.Chart) {
	end := r.end()
	for from := 0.0; from < end; from += bucket.Seconds() {
		to := min(from+bucket.Seconds(), end)
		middle := (from + to) / 2
		var q []Outcome
		for _, run := range w.runs {
			q = append(q, run.within(from, to)...)
		}
		if len(q) == 0 {
			pair[0].Add(w.Defence, report.Gap(middle, "no request was due"))
			pair[1].Add(w.Defence, report.Gap(middle, "no request was due"))
			continue
		}
		pair[0].Add(w.Defence, report.Value(middle,
			answered(q)*float64(len(q))/float64(len(w.runs))/(to-from)))
		if v := percentile(q, 99); math.IsInf(v, 0) {
			pair[1].Add(w.Defence, report.Gap(middle,
				fmt.Sprintf("more than 1 %% of the requests had no answer within %v",
					demo.Patience)))
		} else {
			pair[1].Add(w.Defence, report.Value(middle, v*1e3))
		}
	}
}
