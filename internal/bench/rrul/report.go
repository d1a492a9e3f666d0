package rrul

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"levee/internal/bench"
	"levee/internal/lab/contender"
	"levee/internal/lab/queue"
	"levee/internal/quantity"
	"levee/internal/report"
)

// Directions, as the clients see them.
const (
	Down = "down"
	Up   = "up"
)

var ways = []string{Down, Up}

// Kinds of probes.
const (
	UDP  = "udp"
	ICMP = "icmp"
)

var kinds = []string{UDP, ICMP}

// Report is the document of `levee bench service --rrul --json`; names of fields stay once shipped.
// Times are in seconds.
type Report struct {
	bench.Head
	FlowsEachWay int     `json:"flows_each_way"`
	Probes       float64 `json:"probes_per_second"` // of each kind
	Before       float64 `json:"before"`
	During       float64 `json:"during"`
	After        float64 `json:"after"`
	Bandwidth    float64 `json:"bandwidth"` // bits a second, of queues that were put there
	Cases        []*Case `json:"cases"`
}

// Case is a defence, and a queue at both ends of the way.
type Case struct {
	Defence string  `json:"defence"`
	Queue   string  `json:"queue"` // as it was asked for
	Missing string  `json:"missing,omitempty"`
	Runs    []*Once `json:"runs"`

	defence  contender.Defence
	oneQueue bool // all cases of the run have the same
}

// label returns the name of the case in charts and tables. Where a run has one queue, its settings
// tell that, so that runs with different queues can be compared.
func (c *Case) label() string {
	if c.oneQueue {
		return c.Defence
	}
	return c.Name()
}

// Name tells cases apart.
func (c *Case) Name() string {
	if c.Queue == NoQueue {
		return c.Defence
	}
	return c.Defence + ", " + c.Queue
}

// Once is one run of a case.
type Once struct {
	Round  int               `json:"round"`
	From   float64           `json:"from"` // of the load, since the run began
	To     float64           `json:"to"`
	Step   float64           `json:"step"`
	Looks  []Look            `json:"looks"`
	Resent map[string]uint64 `json:"resent"` // segments, by direction
	Probes []*Probes         `json:"probes"`
	Queues []*Queue          `json:"queues"`
	Steal  float64           `json:"steal"`
	// ClockError is by how much times of the clients and those of the service may differ.
	ClockError float64  `json:"clock_error,omitempty"`
	Invalid    []string `json:"invalid,omitempty"` // why the run has no figures
}

// Look is the bytes of each flow that have arrived by a time.
type Look struct {
	At   float64  `json:"at"`
	Down []uint64 `json:"down"`
	Up   []uint64 `json:"up"`
}

func (l *Look) of(way string) []uint64 {
	if way == Down {
		return l.Down
	}
	return l.Up
}

// Probes are those of a kind: when each was due, and how long it took from then; 0 is one that did
// not come back.
type Probes struct {
	Kind string    `json:"kind"`
	Due  []float64 `json:"due"`
	Took []float64 `json:"took"`
}

// Queue describes the queue at the sender of a direction.
type Queue struct {
	Way string `json:"direction"`
	// Seen holds the kernel's names of the queues, from the device on; Rate their bound, bits a
	// second, 0 where none is bounded.
	Seen []string `json:"seen"`
	Rate float64  `json:"rate"`
	// Waiting bytes and packets at each look; Dropped in all.
	Bytes   []uint32 `json:"bytes"`
	Packets []uint32 `json:"packets"`
	Sent    uint32   `json:"sent"` // packets
	Dropped uint32   `json:"dropped"`
}

// enter notes what a device's queues are at a look. What waits in a leaf is counted above it too,
// so that the largest count is that of all.
func (q *Queue) enter(seen []queue.Queue) {
	var bytes, packets, sent, dropped uint32
	q.Seen, q.Rate = []string{}, 0
	for _, s := range seen {
		q.Seen = append(q.Seen, s.Kind)
		if s.Rate > 0 && (q.Rate == 0 || s.Rate < q.Rate) {
			q.Rate = s.Rate
		}
		bytes, packets = max(bytes, s.WaitingBytes), max(packets, s.WaitingPackets)
		sent, dropped = max(sent, s.Packets), max(dropped, s.Dropped)
	}
	q.Bytes, q.Packets = append(q.Bytes, bytes), append(q.Packets, packets)
	q.Sent, q.Dropped = sent, dropped
}

// Name returns the names of the queues, with the rate that each lets by.
func (q *Queue) Name() string {
	name := strings.Join(q.Seen, " / ")
	if q.Rate > 0 {
		name += " at " + quantity.Print(q.Rate, "bit/s")
	}
	return name
}

// valid returns the runs with figures.
func (c *Case) valid() (runs []*Once) {
	for _, r := range c.Runs {
		if r.why() == "" {
			runs = append(runs, r)
		}
	}
	return runs
}

// why a run has no figures; empty if it has.
func (r *Once) why() string {
	if len(r.Invalid) > 0 {
		return r.Invalid[0]
	}
	for _, way := range ways {
		if sum(r.flows(way)) == 0 {
			return "nothing came " + way
		}
	}
	return ""
}

// flows returns the bits a second of each flow in a direction, once the load has settled.
func (r *Once) flows(way string) []float64 {
	first := slices.IndexFunc(r.Looks, func(l Look) bool { return l.At >= r.From+settle.Seconds() })
	if first < 0 || first == len(r.Looks)-1 {
		return nil
	}
	a, b := &r.Looks[first], &r.Looks[len(r.Looks)-1]
	out := make([]float64, len(b.of(way)))
	for i := range out {
		out[i] = 8 * float64(b.of(way)[i]-a.of(way)[i]) / (b.At - a.At)
	}
	return out
}

func sum(values []float64) (all float64) {
	for _, v := range values {
		all += v
	}
	return all
}

// Phases of a run.
const (
	quiet  = "quiet"
	loaded = "loaded"
)

var phases = []string{quiet, loaded}

// took returns the round trips in ns of the probes of a kind that were due in a phase; those that
// did not come back took forever.
func (r *Once) took(kind, phase string) (ns []float64) {
	from, to := 0.0, r.From
	if phase == loaded {
		from, to = r.From+settle.Seconds(), r.To
	}
	for _, p := range r.Probes {
		for i, due := range p.Due {
			if p.Kind != kind || due < from || due >= to || i >= len(p.Took) {
				continue
			}
			if p.Took[i] == 0 {
				ns = append(ns, math.Inf(1))
			} else {
				ns = append(ns, 1e9*p.Took[i])
			}
		}
	}
	return ns
}

// all returns those of the runs with figures, ascending, and how many have not come back.
func (c *Case) all(kind, phase string) (came []float64, lost int) {
	for _, r := range c.valid() {
		for _, v := range r.took(kind, phase) {
			if math.IsInf(v, 1) {
				lost++
			} else {
				came = append(came, v)
			}
		}
	}
	slices.Sort(came)
	return came, lost
}

// percentile of ns, of which some may be endless.
func percentile(ns []float64, percent float64) float64 {
	if len(ns) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(ns))
	return sorted[max(int(math.Ceil(percent/100*float64(len(sorted)))), 1)-1]
}

// point returns the median over the runs of what each of them has.
func (c *Case) point(of func(*Once) float64) report.Point {
	if c.Missing != "" {
		return report.Gap(0, c.Missing).Of(c.label())
	}
	var rounds []float64
	why := "not measured"
	for _, r := range c.Runs {
		if w := r.why(); w != "" {
			why = w
			continue
		}
		v := of(r)
		if math.IsNaN(v) {
			return report.Gap(0, "no probe was due").Of(c.label())
		}
		if math.IsInf(v, 0) {
			return report.Gap(0, "so many probes did not come back that there is no such "+
				"percentile").Of(c.label())
		}
		rounds = append(rounds, v)
	}
	if len(rounds) == 0 {
		return report.Gap(0, why).Of(c.label())
	}
	return report.Measured(0, rounds).Of(c.label())
}

// throughput returns the throughput of a direction, bits a second.
func (c *Case) throughput(way string) report.Point {
	return c.point(func(r *Once) float64 { return sum(r.flows(way)) })
}

// roundTrip returns a percentile of a kind of probe in a phase, ns.
func (c *Case) roundTrip(kind, phase string, percent float64) report.Point {
	return c.point(func(r *Once) float64 { return percentile(r.took(kind, phase), percent) })
}

const (
	dueCaveat = "probes are due at times drawn beforehand and count from then, whether or not " +
		"the ones before have come back: a long round trip does not thin out those behind it"
	settleCaveat = "flows have half a second to settle, which is in no figure but the curves"
)

var labCaveats = []string{dueCaveat, settleCaveat,
	"the clients, their flows and the probes share one core, the service and what receives for " +
		"it the other; probes go first on theirs. Without a queue that bounds the rate the cores " +
		"are the limit: packets wait in the ring of the veth pair, 256 at most, and for the cores",
}

var wireCaveats = []string{dueCaveat, settleCaveat,
	"the clients, their flows and the probes share one core of their machine, the service and " +
		"what receives for it one here; probes go first on theirs. Neither card cuts " +
		"segments for its sender: without a queue that bounds the rate the cores are the limit, " +
		"or the wire",
}

// Complete tells whether each case that this machine can have has a figure, and any has.
func (r *Report) Complete() bool {
	return r.Incomplete == "" && !slices.ContainsFunc(r.Cases,
		func(c *Case) bool { return c.Missing == "" && len(c.valid()) == 0 }) &&
		slices.ContainsFunc(r.Cases, func(c *Case) bool { return c.Missing == "" })
}

// Raw returns all that was measured.
func (r *Report) Raw() any { return r }

func printed(p report.Point, unit string) string {
	if p.Y == nil {
		return "-"
	}
	s := quantity.Print(quantity.Round(*p.Y, 3), unit)
	if p.Low != nil {
		s += fmt.Sprintf(" (%s to %s)", quantity.Print(quantity.Round(*p.Low, 3), unit),
			quantity.Print(quantity.Round(*p.High, 3), unit))
	}
	return s
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	t := r.Head.Text("", "; these are the runs until then")
	t.Printf("%d TCP flows each way for %g s, %g probes of each kind a second; medians of %d "+
		"rounds with their 95 %% intervals\n\n", r.FlowsEachWay, r.During, r.Probes, r.Rounds)
	t.Table(0, func(w io.Writer) {
		fmt.Fprintln(w, "throughput\tdown\tup\tleast and most flow, down\tup")
		for _, c := range r.Cases {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.Name(), printed(c.throughput(Down), "bit/s"),
				printed(c.throughput(Up), "bit/s"), c.span(Down), c.span(Up))
		}
	})
	for _, kind := range kinds {
		t.Printf("\nround trips, %s: p50, p99\n", strings.ToUpper(kind))
		t.Table(tabwriter.AlignRight, func(w io.Writer) {
			fmt.Fprintln(w, "\tquiet, p50\tp99\tloaded, p50\tp99\tlost\t")
			for _, c := range r.Cases {
				fmt.Fprintf(w, "%s\t", c.Name())
				for _, phase := range phases {
					fmt.Fprintf(w, "%s\t%s\t", printed(c.roundTrip(kind, phase, 50), "ns"),
						printed(c.roundTrip(kind, phase, 99), "ns"))
				}
				came, lost := c.all(kind, loaded)
				fmt.Fprintf(w, "%d of %d\t\n", lost, len(came)+lost)
			}
		})
	}
	t.Printf("\nqueues\n")
	t.Table(0, func(w io.Writer) {
		fmt.Fprintln(w, "\tdirection\tseen\twaiting, median\tmost\tdropped")
		for _, c := range r.Cases {
			for _, way := range ways {
				if q := c.queue(way); q != nil {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d of %d\n", c.Name(), way, q.name,
						quantity.Print(q.median, "bytes"), quantity.Print(q.most, "bytes"),
						q.dropped, q.sent+q.dropped)
				}
			}
		}
	})
	t.Printf("\n")
	t.Refusals(r.refusals())
	return t.End(w, &r.Head)
}

func (r *Report) refusals() (out []report.Refusal) {
	for _, c := range r.Cases {
		switch {
		case c.Missing != "":
			out = append(out, report.Refusal{What: c.Name(), Why: c.Missing})
		case len(c.valid()) < len(c.Runs):
			for _, x := range c.Runs {
				if why := x.why(); why != "" {
					out = append(out, report.Refusal{
						What: fmt.Sprintf("%s, round %d", c.Name(), x.Round+1), Why: why})
				}
			}
		}
	}
	return out
}

// each returns the bits a second of each flow of all runs in a direction.
func (c *Case) each(way string) (out []float64) {
	for _, r := range c.valid() {
		out = append(out, r.flows(way)...)
	}
	return out
}

func (c *Case) span(way string) string {
	all := c.each(way)
	if len(all) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s to %s", quantity.Print(quantity.Round(slices.Min(all), 3), "bit/s"),
		quantity.Print(quantity.Round(slices.Max(all), 3), "bit/s"))
}

// waited holds the readings of a direction's queues in all runs under load.
type waited struct {
	name          string
	rate          float64
	median, most  float64 // bytes
	sent, dropped uint64  // packets
}

func (c *Case) queue(way string) *waited {
	var w *waited
	var bytes []float64
	for _, r := range c.valid() {
		for _, q := range r.Queues {
			if q.Way != way {
				continue
			}
			if w == nil {
				w = &waited{name: q.Name(), rate: q.Rate}
			}
			w.sent, w.dropped = w.sent+uint64(q.Sent), w.dropped+uint64(q.Dropped)
			for _, b := range q.Bytes {
				bytes = append(bytes, float64(b))
			}
		}
	}
	if len(bytes) > 0 {
		w.median, w.most = percentile(bytes, 50), slices.Max(bytes)
	}
	return w
}
