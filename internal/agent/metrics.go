package agent

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/notify"
	"levee/internal/agent/part"
	"levee/internal/openmetrics"
)

// metricsRoute returns what monitoring reads: of the data plane and of the agent. It answers one
// request at a time: to ask is cheap, to read all counters is not.
func (a *Agent) metricsRoute(s **api.Server) api.Route {
	var one sync.Mutex
	return api.Raw("/metrics", api.Viewer,
		"Metrics of the policies in force and of the agent, as OpenMetrics or as Prometheus' text.",
		openmetrics.OpenMetrics.ContentType()+", "+openmetrics.Text.ContentType(), nil,
		func(w http.ResponseWriter, r *http.Request) {
			format := openmetrics.Text
			if strings.Contains(r.Header.Get("Accept"), "application/openmetrics-text") {
				format = openmetrics.OpenMetrics
			}
			one.Lock()
			defer one.Unlock()
			all, err := a.metrics(r.Context(), *s)
			if err != nil {
				api.WriteError(w, err)
				return
			}
			w.Header().Set("Content-Type", format.ContentType())
			_, _ = w.Write(openmetrics.Append(nil, format, all)) // who asked may be gone
		})
}

func (a *Agent) metrics(ctx context.Context, s *api.Server) (all []openmetrics.Family, err error) {
	if a.opts.Metrics != nil {
		if all, err = a.opts.Metrics(ctx); err != nil {
			return nil, err
		}
	}
	var st Status
	if err := a.do(ctx, func() error { st = a.current(); return nil }); err != nil {
		return nil, err
	}
	all = append(append(all, st.families()...), notifications(a.notified()))
	return append(append(all, requests(s.Requests())), process()...), nil
}

// families returns the metrics of an agent's status.
func (s *Status) families() []openmetrics.Family {
	one := func(v float64) []openmetrics.Sample { return []openmetrics.Sample{{Value: v}} }
	all := []openmetrics.Family{
		{Name: "levee_agent_since_seconds", Unit: "seconds", Samples: one(unixSeconds(s.Since)),
			Help: "When the agent began, in seconds since 1970."},
		{Name: "levee_agent_leases", Unit: "leases", Samples: one(float64(s.Compare.Leases)),
			Help: "Leases that lived at the last comparison with the kernel."},
		{Name: "levee_agent_leased_entries", Unit: "entries",
			Samples: one(float64(s.Compare.Entries)), Help: "Entries that these are of."},
		{Name: "levee_agent_held_entries", Unit: "entries", Samples: one(float64(s.Compare.Held)),
			Help: "Entries of these that the kernel held, once it was repaired."},
		{Name: "levee_agent_repaired_entries", Unit: "entries", Type: openmetrics.Counter,
			Samples: one(float64(s.Compare.Repaired)),
			Help:    "Entries that the kernel lacked, and that were put back."},
		{Name: "levee_agent_compared_seconds", Unit: "seconds",
			Samples: one(unixSeconds(s.Compare.At)),
			Help:    "When the last comparison was, in seconds since 1970."},
		{Name: "levee_agent_compare_duration_seconds", Unit: "seconds",
			Samples: one(s.Compare.Seconds), Help: "How long it took."},
		{Name: "levee_agent_refused_entries", Unit: "entries", Type: openmetrics.Counter,
			Samples: one(float64(s.Refused)),
			Help:    "Entries refused, since they have an address that no entry may have."},
		{Name: "levee_agent_full_leases", Unit: "leases", Type: openmetrics.Counter,
			Samples: one(float64(s.Full)), Help: "Leases not taken, as the ledger was full."},
		{Name: "levee_agent_alarms", Unit: "alarms", Samples: one(float64(len(s.Alarms))),
			Help: "Alarms in the status: parts that fail, and at most 32 events."},
		{Name: "levee_agent_ledger_bytes", Unit: "bytes", Samples: one(float64(s.Ledger.Bytes)),
			Help: "Size of the ledger's file."},
	}
	all = append(append(all, s.partFamilies()...), s.sourceFamilies()...)
	return append(all, s.listFamilies()...)
}

// partFamilies returns the metrics of the agent's parts.
func (s *Status) partFamilies() []openmetrics.Family {
	works := openmetrics.Family{Name: "levee_agent_part_works",
		Help: "1 if the part works, 0 if it fails or waits."}
	fails := openmetrics.Family{Name: "levee_agent_part_fails",
		Help: "1 if the part fails: an alarm."}
	since := openmetrics.Family{Name: "levee_agent_part_since_seconds", Unit: "seconds",
		Help: "Since when the part works, waits or fails, in seconds since 1970."}
	last := openmetrics.Family{Name: "levee_agent_part_last_seconds", Unit: "seconds",
		Help: "When the part saw, sent or wrote something last, in seconds since 1970; 0: never."}
	failures := openmetrics.Family{Name: "levee_agent_part_failures", Unit: "failures",
		Type: openmetrics.Counter, Help: "How often the part has begun to fail."}
	for i := range s.Parts {
		p := &s.Parts[i]
		add := func(f *openmetrics.Family, v float64) {
			f.Samples = append(f.Samples, openmetrics.Sample{Value: v,
				Labels: []openmetrics.Label{{Name: "kind", Value: string(p.Kind)},
					{Name: "name", Value: p.Name}, {Name: "dev", Value: p.Dev}}})
		}
		add(&works, oneIf(p.State == part.Works))
		add(&fails, oneIf(p.State == part.Fails))
		add(&since, unixSeconds(p.Since))
		add(&last, unixSeconds(p.Last))
		add(&failures, float64(p.Failures))
	}
	return []openmetrics.Family{works, fails, since, last, failures}
}

// listFamilies returns the metrics of feeds, bouncers and names.
func (s *Status) listFamilies() []openmetrics.Family {
	entries := openmetrics.Family{Name: "levee_list_entries", Unit: "entries",
		Help: "Entries of the list at its last reading."}
	read := openmetrics.Family{Name: "levee_list_read_seconds", Unit: "seconds",
		Help: "When the list was read last, in seconds since 1970; 0: not yet."}
	failed := openmetrics.Family{Name: "levee_list_failed",
		Help: "1 if the list could not be read the last time."}
	held := openmetrics.Family{Name: "levee_list_held",
		Help: "1 if a large change of the list waits for somebody to look at it."}
	for i := range s.Lists {
		l := &s.Lists[i]
		add := func(f *openmetrics.Family, v float64) {
			f.Samples = append(f.Samples, openmetrics.Sample{Value: v,
				Labels: []openmetrics.Label{{Name: "list", Value: l.Name},
					{Name: "set", Value: l.Set}}})
		}
		add(&entries, float64(l.Entries))
		add(&read, unixSeconds(l.Read))
		add(&failed, oneIf(l.Error != ""))
		add(&held, oneIf(l.Held != nil))
	}
	return []openmetrics.Family{entries, read, failed, held}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (s *Status) sourceFamilies() []openmetrics.Family {
	const (
		events = iota
		matched
		malformed
		long
		rotations
		flows
		unknown
		lost
		lag
		behind
		failed
		missing
	)
	all := []openmetrics.Family{
		events: {Name: "levee_source_events", Unit: "events", Type: openmetrics.Counter,
			Help: "Events of the source."},
		matched: {Name: "levee_source_matched_events", Unit: "events", Type: openmetrics.Counter,
			Help: "Events for which all conditions hold."},
		malformed: {Name: "levee_source_malformed_events", Unit: "events",
			Type: openmetrics.Counter,
			Help: "Events that cannot be read."},
		long: {Name: "levee_source_long_events", Unit: "events", Type: openmetrics.Counter,
			Help: "Events above the bound."},
		rotations: {Name: "levee_source_rotations", Unit: "rotations", Type: openmetrics.Counter,
			Help: "Rotations of the file."},
		flows: {Name: "levee_source_flows", Unit: "flows", Type: openmetrics.Counter,
			Help: "Flows that were read."},
		unknown: {Name: "levee_source_unknown_flows", Unit: "flows", Type: openmetrics.Counter,
			Help: "Flows that said something else, or nothing that could be read."},
		lost: {Name: "levee_source_lost_packets", Unit: "packets", Type: openmetrics.Counter,
			Help: "Packets of flows that there was no room for."},
		lag: {Name: "levee_source_lag_bytes", Unit: "bytes",
			Help: "Bytes that are written and not read."},
		behind: {Name: "levee_source_lag_seconds", Unit: "seconds",
			Help: "Time since all was read."},
		failed: {Name: "levee_source_failed", Help: "1 if the source cannot be read."},
		missing: {Name: "levee_agent_missing_entries", Unit: "entries",
			Help: "Leased entries that the set in the kernel has no room for."},
	}
	add := func(family int, v float64, labels ...openmetrics.Label) {
		f := &all[family]
		f.Samples = append(f.Samples, openmetrics.Sample{Labels: labels, Value: v})
	}
	for i := range s.Sources {
		src := &s.Sources[i]
		name := openmetrics.Label{Name: "source", Value: src.Name}
		add(events, float64(src.Events), name)
		add(matched, float64(src.Matched), name)
		add(malformed, float64(src.Malformed), name)
		add(long, float64(src.TooLong), name)
		add(rotations, float64(src.Rotations), name)
		add(flows, float64(src.Flows), name)
		add(unknown, float64(src.Unknown), name)
		add(lost, float64(src.Lost), name)
		add(lag, float64(src.LagBytes), name)
		add(behind, src.LagSeconds, name)
		add(failed, oneIf(src.Error != ""), name)
	}
	for _, set := range s.Sets {
		add(missing, float64(set.Missing), openmetrics.Label{Name: "set", Value: set.Name})
	}
	return all
}

// notifications are messages and events by what became of them.
func notifications(all []notify.Status) openmetrics.Family {
	f := openmetrics.Family{Name: "levee_notifications", Unit: "notifications",
		Type: openmetrics.Counter, Help: "Messages that were sent or failed, events that were " +
			"held or lost."}
	for i := range all {
		s := &all[i]
		for _, r := range []struct {
			name string
			n    uint64
		}{{"sent", s.Sent}, {"failed", s.Failed}, {"held", s.Held}, {"lost", s.Lost}} {
			f.Samples = append(f.Samples, openmetrics.Sample{Value: float64(r.n),
				Labels: []openmetrics.Label{{Name: "target", Value: s.Name}, {Name: "result",
					Value: r.name}}})
		}
	}
	return f
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// requests returns the answers of the API.
func requests(all map[api.Answered]uint64) openmetrics.Family {
	f := openmetrics.Family{Name: "levee_api_requests", Unit: "requests", Type: openmetrics.Counter,
		Help: "Requests to the API, by route and status."}
	kinds := slices.SortedFunc(maps.Keys(all), func(x, y api.Answered) int {
		return cmp.Or(strings.Compare(x.Route, y.Route), x.Status-y.Status)
	})
	for _, of := range kinds {
		n := all[of]
		f.Samples = append(f.Samples, openmetrics.Sample{Value: float64(n),
			Labels: []openmetrics.Label{
				{Name: "route", Value: of.Route}, {Name: "code", Value: strconv.Itoa(of.Status)}}})
	}
	return f
}

// process returns what the agent itself takes, under the names that Prometheus' own libraries give
// (proc_pid_stat(5)).
func process() []openmetrics.Family {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 22 {
		return nil
	}
	number := func(i int) float64 {
		v, _ := strconv.ParseFloat(fields[i], 64)
		return v
	}
	const ticks = 100 // a second, of all architectures that levee runs on
	return []openmetrics.Family{
		{Name: "process_cpu_seconds", Unit: "seconds", Type: openmetrics.Counter,
			Help:    "Processor time of the agent.",
			Samples: []openmetrics.Sample{{Value: (number(11) + number(12)) / ticks}}},
		{Name: "process_resident_memory_bytes", Unit: "bytes", Help: "Memory of the agent.",
			Samples: []openmetrics.Sample{{Value: number(21) * float64(os.Getpagesize())}}},
	}
}
