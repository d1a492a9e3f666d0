package mpegts

import (
	"slices"
	"strconv"

	"levee/internal/openmetrics"
)

// streamCounter is a counter of one stream.
type streamCounter struct {
	name, help string
	of         func(*StreamReport) uint64
}

var streamCounters = []streamCounter{
	{"datagrams", "Datagrams that were followed.",
		func(s *StreamReport) uint64 { return s.Datagrams }},
	{"rtp_lost_datagrams", "Sequence numbers of RTP that were skipped.",
		func(s *StreamReport) uint64 { return s.RTPLost }},
	{"rtp_late_datagrams", "Datagrams that came later than the next.",
		func(s *StreamReport) uint64 { return s.RTPLate }},
	{"rtp_restarts", "Sequences of RTP that began anew.",
		func(s *StreamReport) uint64 { return s.RTPRestarts }},
	{"repeated_datagrams", "Datagrams that had come before.",
		func(s *StreamReport) uint64 { return s.Repeated }},
	{"strange_datagrams", "Datagrams that are not of packets of a stream.",
		func(s *StreamReport) uint64 { return s.Strange }},
	{"fragmented_datagrams", "Datagrams in fragments, which are not followed.",
		func(s *StreamReport) uint64 { return s.Fragments }},
	{"silences", "Pauses without signal.",
		func(s *StreamReport) uint64 { return s.Silences }},
	{"null_packets", "Packets of PID 8191.",
		func(s *StreamReport) uint64 { return s.Nulls }},
	{"unsynced_packets", "Packets without a sync byte.",
		func(s *StreamReport) uint64 { return s.Unsynced }},
	{"unfollowed_packets", "Packets of PIDs beyond the 255 that are followed.",
		func(s *StreamReport) uint64 { return s.Unfollowed }},
}

// pidCounter is a counter of one PID of a stream.
type pidCounter struct {
	name, help string
	of         func(*Counts) uint64
}

var pidCounters = []pidCounter{
	{"pid_packets", "Packets by PID.",
		func(c *Counts) uint64 { return c.Packets }},
	{"pid_discontinuities", "Discontinuities that nothing declares, by PID.",
		func(c *Counts) uint64 { return c.Discontinuities }},
	{"pid_missing_packets", "Packets that counters skip, at least, by PID.",
		func(c *Counts) uint64 { return c.Missing }},
	{"pid_duplicate_packets", "Packets that came again, by PID.",
		func(c *Counts) uint64 { return c.Duplicates }},
	{"pid_declared_packets", "Packets that declare a discontinuity, by PID.",
		func(c *Counts) uint64 { return c.Declared }},
	{"pid_scrambled_packets", "Scrambled packets, by PID.",
		func(c *Counts) uint64 { return c.Scrambled }},
	{"pid_error_packets", "Packets marked as damaged, by PID.",
		func(c *Counts) uint64 { return c.Errors }},
}

func gauge(name, unit, help string) *openmetrics.Family {
	return &openmetrics.Family{Name: "levee_mpegts_" + name, Unit: unit, Help: help}
}

func counter(name, unit, help string) *openmetrics.Family {
	f := gauge(name, unit, help)
	f.Type = openmetrics.Counter
	return f
}

// families collects the samples of the streams of an interface.
type families struct {
	signal, rate, delay, delayMost, silent *openmetrics.Family

	streams, pids []*openmetrics.Family // in the order of streamCounters and pidCounters
}

func newFamilies() *families {
	f := &families{
		signal: gauge("signal", "",
			"Whether something came within the time that is called silence."),
		rate: gauge("media_rate_bits_per_second", "",
			"Media rate, as the delay factor has it."),
		delay: gauge("delay_factor_seconds", "seconds",
			"Delay factor of the last window (RFC 4445)."),
		delayMost: gauge("delay_factor_highest_seconds", "seconds", "Highest delay factor."),
		silent:    counter("silence_seconds", "seconds", "Time of pauses without signal."),
	}
	for _, c := range streamCounters {
		f.streams = append(f.streams, counter(c.name, "", c.help))
	}
	for _, c := range pidCounters {
		f.pids = append(f.pids, counter(c.name, "", c.help))
	}
	return f
}

// add adds the samples of a stream.
func (f *families) add(dev openmetrics.Label, s *StreamReport) {
	labels := labelsOf(dev, s)
	sample := func(of *openmetrics.Family, v float64, more ...openmetrics.Label) {
		of.Samples = append(of.Samples,
			openmetrics.Sample{Labels: append(labels, more...), Value: v})
	}
	is := 0.0
	if s.Signal {
		is = 1
	}
	sample(f.signal, is)
	if s.MediaRate != nil {
		sample(f.rate, *s.MediaRate)
	}
	if s.Delay != nil {
		sample(f.delay, *s.Delay/1e3)
		sample(f.delayMost, *s.DelayMost/1e3)
	}
	sample(f.silent, s.Silent)
	for i, c := range streamCounters {
		sample(f.streams[i], float64(c.of(s)))
	}
	for i := range s.PIDs {
		p := &s.PIDs[i]
		pid := openmetrics.Label{Name: "pid", Value: strconv.Itoa(int(p.PID))}
		for i, c := range pidCounters {
			sample(f.pids[i], float64(c.of(&p.Counts)), pid)
		}
	}
}

// labelsOf returns the labels of a stream, without spare capacity.
func labelsOf(dev openmetrics.Label, s *StreamReport) []openmetrics.Label {
	labels := []openmetrics.Label{dev, {Name: "dst", Value: s.Dst}, {Name: "src", Value: s.Src}}
	if s.VLAN != nil {
		labels = append(labels, openmetrics.Label{Name: "vlan", Value: strconv.Itoa(*s.VLAN)})
	}
	if s.InnerVLAN != nil {
		labels = append(labels, openmetrics.Label{Name: "inner_vlan",
			Value: strconv.Itoa(*s.InnerVLAN)})
	}
	return labels[:len(labels):len(labels)]
}

// Metrics returns the families of a report.
func (r *Report) Metrics() []openmetrics.Family {
	dev := openmetrics.Label{Name: "dev", Value: r.Dev}
	f := newFamilies()
	for i := range r.Streams {
		f.add(dev, &r.Streams[i])
	}
	all := slices.Concat([]*openmetrics.Family{f.signal, f.rate, f.delay, f.delayMost, f.silent},
		f.streams, f.pids)
	for _, c := range []struct {
		*openmetrics.Family
		n uint64
	}{
		{counter("parity_datagrams", "", "Datagrams with parity of others."), r.Totals.FEC},
		{counter("later_fragments", "", "Fragments of UDP that are not the first."),
			r.Totals.Fragments},
		{counter("unplaced_datagrams", "", "Datagrams of streams beyond the most."),
			r.Totals.Unplaced},
	} {
		c.Samples = []openmetrics.Sample{{Labels: []openmetrics.Label{dev}, Value: float64(c.n)}}
		all = append(all, c.Family)
	}
	out := make([]openmetrics.Family, len(all))
	for i, f := range all {
		out[i] = *f
	}
	return out
}
