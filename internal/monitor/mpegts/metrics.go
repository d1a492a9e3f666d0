package mpegts

import (
	"strconv"

	"levee/internal/openmetrics"
)

// Metrics are the families of a report.
func (r *Report) Metrics() []openmetrics.Family {
	counter := func(name, unit, help string) *openmetrics.Family {
		return &openmetrics.Family{Name: "levee_mpegts_" + name, Unit: unit, Help: help,
			Type: openmetrics.Counter}
	}
	gauge := func(name, unit, help string) *openmetrics.Family {
		return &openmetrics.Family{Name: "levee_mpegts_" + name, Unit: unit, Help: help}
	}
	signal := gauge("signal", "", "Whether something came within the time that is called silence.")
	rate := gauge("media_rate_bits_per_second", "", "Media rate, as the delay factor has it.")
	delay := gauge("delay_factor_seconds", "seconds", "Delay factor of the last window (RFC 4445).")
	delayMost := gauge("delay_factor_highest_seconds", "seconds", "Highest delay factor.")
	silent := counter("silence_seconds", "seconds", "Time of pauses without signal.")
	all := []*openmetrics.Family{signal, rate, delay, delayMost, silent}
	type count struct {
		*openmetrics.Family
		of func(*StreamReport) uint64
	}
	counts := []count{
		{counter("datagrams", "", "Datagrams that were followed."),
			func(s *StreamReport) uint64 { return s.Datagrams }},
		{counter("rtp_lost_datagrams", "", "Sequence numbers of RTP that were skipped."),
			func(s *StreamReport) uint64 { return s.RTPLost }},
		{counter("rtp_late_datagrams", "", "Datagrams that came later than the next."),
			func(s *StreamReport) uint64 { return s.RTPLate }},
		{counter("rtp_restarts", "", "Sequences of RTP that began anew."),
			func(s *StreamReport) uint64 { return s.RTPRestarts }},
		{counter("repeated_datagrams", "", "Datagrams that had come before."),
			func(s *StreamReport) uint64 { return s.Repeated }},
		{counter("strange_datagrams", "", "Datagrams that are not of packets of a stream."),
			func(s *StreamReport) uint64 { return s.Strange }},
		{counter("fragmented_datagrams", "", "Datagrams in fragments, which are not followed."),
			func(s *StreamReport) uint64 { return s.Fragments }},
		{counter("silences", "", "Pauses without signal."),
			func(s *StreamReport) uint64 { return s.Silences }},
		{counter("null_packets", "", "Packets of PID 8191."),
			func(s *StreamReport) uint64 { return s.Nulls }},
		{counter("unsynced_packets", "", "Packets without a sync byte."),
			func(s *StreamReport) uint64 { return s.Unsynced }},
		{counter("unfollowed_packets", "", "Packets of PIDs beyond the 255 that are followed."),
			func(s *StreamReport) uint64 { return s.Unfollowed }},
	}
	type ofPID struct {
		*openmetrics.Family
		of func(*Counts) uint64
	}
	pids := []ofPID{
		{counter("pid_packets", "", "Packets by PID."),
			func(c *Counts) uint64 { return c.Packets }},
		{counter("pid_discontinuities", "", "Discontinuities that nothing declares, by PID."),
			func(c *Counts) uint64 { return c.Discontinuities }},
		{counter("pid_missing_packets", "", "Packets that counters skip, at least, by PID."),
			func(c *Counts) uint64 { return c.Missing }},
		{counter("pid_duplicate_packets", "", "Packets that came again, by PID."),
			func(c *Counts) uint64 { return c.Duplicates }},
		{counter("pid_declared_packets", "", "Packets that declare a discontinuity, by PID."),
			func(c *Counts) uint64 { return c.Declared }},
		{counter("pid_scrambled_packets", "", "Scrambled packets, by PID."),
			func(c *Counts) uint64 { return c.Scrambled }},
		{counter("pid_error_packets", "", "Packets marked as damaged, by PID."),
			func(c *Counts) uint64 { return c.Errors }},
	}
	dev := openmetrics.Label{Name: "dev", Value: r.Dev}
	for i := range r.Streams {
		s := &r.Streams[i]
		labels := []openmetrics.Label{dev, {Name: "dst", Value: s.Dst}, {Name: "src", Value: s.Src}}
		if s.VLAN != nil {
			labels = append(labels, openmetrics.Label{Name: "vlan",
				Value: strconv.Itoa(*s.VLAN)})
		}
		if s.InnerVLAN != nil {
			labels = append(labels, openmetrics.Label{Name: "inner_vlan",
				Value: strconv.Itoa(*s.InnerVLAN)})
		}
		labels = labels[:len(labels):len(labels)]
		add := func(f *openmetrics.Family, v float64, more ...openmetrics.Label) {
			f.Samples = append(f.Samples, openmetrics.Sample{Labels: append(labels, more...),
				Value: v})
		}
		is := 0.0
		if s.Signal {
			is = 1
		}
		add(signal, is)
		if s.MediaRate != nil {
			add(rate, *s.MediaRate)
		}
		if s.Delay != nil {
			add(delay, *s.Delay/1e3)
			add(delayMost, *s.DelayMost/1e3)
		}
		add(silent, s.Silent)
		for _, c := range counts {
			add(c.Family, float64(c.of(s)))
		}
		for i := range s.PIDs {
			p := &s.PIDs[i]
			for _, c := range pids {
				add(c.Family, float64(c.of(&p.Counts)),
					openmetrics.Label{Name: "pid", Value: strconv.Itoa(int(p.PID))})
			}
		}
	}
	for _, c := range counts {
		all = append(all, c.Family)
	}
	for _, c := range pids {
		all = append(all, c.Family)
	}
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
