package service

import (
	"fmt"
	"io"
	"math"
	"slices"

	"levee/internal/lab/demo"
	"levee/internal/packet"
	"levee/internal/report"
)

// phase is a part of a run, in seconds from its beginning.
type phase struct {
	name     string
	from, to float64
}

func (r *Report) phases(run *Once) []phase {
	return []phase{{"before", 0, run.From}, {"during", run.From, run.To},
		{"after", run.To, r.end()}}
}

// kind is the flood, with its family if that is not IPv4.
func (run *Once) kind() string {
	if run.Family == packet.IPv6 {
		return run.Flood + "-ipv6"
	}
	return run.Flood
}

// end of each run.
func (r *Report) end() float64 { return (r.Before + r.During + r.After).Seconds() }

// within are the requests of a run that were due in a span of time.
func (run *Once) within(from, to float64) (out []Outcome) {
	for _, q := range run.Requests {
		if q.Due >= from && q.Due < to {
			out = append(out, q)
		}
	}
	return out
}

// answered is the share of requests that were answered, not a number where there were none.
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
	"one run each: the curves show what happens, not how exactly",
}

// milliseconds of a percentile for a person.
func milliseconds(requests []Outcome, percent float64) string {
	if v := percentile(requests, percent); !math.IsInf(v, 0) {
		return fmt.Sprintf("%.1f", v*1e3)
	}
	return "-"
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
	case answered(before) < quietShare:
		return fmt.Sprintf("only %.0f %% of the requests were answered before the flood: "+
			"something else kept this machine busy", 100*answered(before))
	}
	return ""
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	t := r.Head.Text("", "")
	t.Printf("a web service, %g requests a second, floods of %s packets/s; %v before, %v of "+
		"flood, %v after\n",
		r.Requests, demo.SI(r.Rate), r.Before, r.During, r.After)
	t.Printf("answered in time, p50 and p99 in ms\n")
	t.Table(0, func(w io.Writer) {
		last := ""
		for _, run := range r.Runs {
			if run.kind() != last {
				fmt.Fprintf(w, "\n%s: %s\t\n", run.kind(), run.What)
				fmt.Fprintln(w, "\tbefore\tduring\tafter\t")
				last = run.kind()
			}
			fmt.Fprintf(w, "  %s\t", run.Defence)
			if why := r.why(run); why != "" {
				fmt.Fprintf(w, "%s\t\n", why)
				continue
			}
			for _, p := range r.phases(run) {
				q := run.within(p.from, p.to)
				if len(q) == 0 {
					fmt.Fprint(w, "-\t")
					continue
				}
				fmt.Fprintf(w, "%.1f %% (%s, %s)\t", 100*answered(q), milliseconds(q, 50),
					milliseconds(q, 99))
			}
			fmt.Fprintln(w)
		}
	})
	t.Printf("\n")
	return t.End(w, &r.Head)
}

// Complete tells whether each defence that is installed has a figure under each flood.
func (r *Report) Complete() bool {
	return r.Incomplete == "" && !slices.ContainsFunc(r.Runs,
		func(run *Once) bool { return run.Missing == "" && r.why(run) != "" })
}

// Document is the report to be drawn: answers and latency by time, for each flood.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("service", "A web service under floods",
		fmt.Sprintf("%g requests a second to a web service, before, during and after floods of "+
			"%s packets/s, behind each defence.", r.Requests, demo.SI(r.Rate)))
	d.Set("requests a second", fmt.Sprint(r.Requests))
	d.Set("flood", demo.SI(r.Rate)+" packets/s")
	d.Set("before, during, after", fmt.Sprintf("%v, %v, %v", r.Before, r.During, r.After))
	t := d.Table("phases", "Before, during, after",
		report.Column{Name: "flood"}, report.Column{Name: "defence"}, report.Column{Name: "phase"},
		report.Column{Name: "answered", Unit: "%"},
		report.Column{Name: "p50", Unit: "ms"}, report.Column{Name: "p99", Unit: "ms"},
		report.Column{Name: "requests"})
	charts := map[string][2]*report.Chart{}
	for _, run := range r.Runs {
		if why := r.why(run); why != "" {
			d.Refuse(run.Defence+", "+run.kind()+" flood", why)
			continue
		}
		pair, ok := charts[run.kind()]
		if !ok {
			pair = r.charts(d, run)
			charts[run.kind()] = pair
		}
		r.curves(run, pair)
		for _, p := range r.phases(run) {
			q := run.within(p.from, p.to)
			t.Row(report.Text(run.kind()), report.Text(run.Defence), report.Text(p.name),
				report.Number(100*answered(q)),
				report.Number(1e3*percentile(q, 50)), report.Number(1e3*percentile(q, 99)),
				report.Number(float64(len(q))))
		}
	}
	return d
}

// charts makes the two pictures of a flood.
func (r *Report) charts(d *report.Document, run *Once) [2]*report.Chart {
	flood := []report.Mark{{From: run.From, To: run.To, Label: run.What}}
	time := report.Axis{Label: "time", Unit: "s"}
	return [2]*report.Chart{
		d.Chart(report.Chart{
			ID: run.kind() + "-goodput", Title: "Answered, " + run.kind() + " flood",
			Kind: report.Time, X: time, Marks: flood,
			Y: report.Axis{Label: "answered requests", Unit: "requests/s"}, Better: report.More,
		}),
		d.Chart(report.Chart{
			ID: run.kind() + "-latency", Title: "Latency (p99), " + run.kind() + " flood",
			Kind: report.Time, X: time, Marks: flood,
			Y: report.Axis{Label: "latency", Unit: "ms", Log: true}, Better: report.Less,
		}),
	}
}

// curves draws a run, a point for each bucket.
func (r *Report) curves(run *Once, pair [2]*report.Chart) {
	end := r.end()
	for from := 0.0; from < end; from += bucket.Seconds() {
		to := min(from+bucket.Seconds(), end)
		q, middle := run.within(from, to), (from+to)/2
		if len(q) == 0 {
			pair[0].Add(run.Defence, report.Gap(middle, "no request was due"))
			pair[1].Add(run.Defence, report.Gap(middle, "no request was due"))
			continue
		}
		pair[0].Add(run.Defence, report.Value(middle, answered(q)*float64(len(q))/(to-from)))
		if v := percentile(q, 99); math.IsInf(v, 0) {
			pair[1].Add(run.Defence, report.Gap(middle,
				fmt.Sprintf("more than 1 %% of the requests had no answer within %v",
					demo.Patience)))
		} else {
			pair[1].Add(run.Defence, report.Value(middle, v*1e3))
		}
	}
}
