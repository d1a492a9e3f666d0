package mpegts

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/lang/diag"
)

// Look holds the streams and their counters at one moment.
type Look struct {
	At      time.Time
	Clock   time.Duration // that the times of streams are of
	Streams []Stream      // in the order of flows
	Totals  Totals
}

// Report is the report on the streams of an interface.
type Report struct {
	Dev    string    `json:"dev"`
	Mode   string    `json:"mode"`
	Behind string    `json:"behind"`
	At     time.Time `json:"at"`
	// Seconds since the look before; rates are of these.
	Seconds float64        `json:"seconds"`
	Streams []StreamReport `json:"streams"`
	// Absent are groups that were asked for and have had no stream.
	Absent []string `json:"absent"`
	Totals Totals   `json:"totals"`
}

// StreamReport is one stream. Counters are since its first datagram.
type StreamReport struct {
	Src       string `json:"src"`
	Dst       string `json:"dst"`
	VLAN      *int   `json:"vlan,omitempty"`
	InnerVLAN *int   `json:"inner_vlan,omitempty"`
	RTP       bool   `json:"rtp"`
	SSRC      uint32 `json:"ssrc,omitempty"`
	// signal says whether something came within the time that is called silence.
	Signal    bool      `json:"signal"`
	Begun     time.Time `json:"begun"`
	Last      time.Time `json:"last"`
	Bps       float64   `json:"bps"` // bits a second of its packets, since the look before
	MediaRate *float64  `json:"media_rate,omitempty"`
	MediaBy   string    `json:"media_rate_by,omitempty"`
	// The media delivery index (RFC 4445): the delay factor in ms of the last window and the
	// highest, and lost packets a second since the look before.
	Delay     *float64 `json:"delay_factor,omitempty"`
	DelayMost *float64 `json:"delay_factor_highest,omitempty"`
	Loss      float64  `json:"media_loss_rate"`
	Counts
	Datagrams   uint64  `json:"datagrams"`
	Nulls       uint64  `json:"nulls"`
	Unsynced    uint64  `json:"unsynced"`
	Unfollowed  uint64  `json:"unfollowed"`
	RTPLost     uint64  `json:"rtp_lost"`
	RTPLate     uint64  `json:"rtp_late"`
	RTPRestarts uint64  `json:"rtp_restarts"`
	Repeated    uint64  `json:"repeated"`
	Strange     uint64  `json:"strange"`
	Fragments   uint64  `json:"fragments"`
	Silences    uint64  `json:"silences"`
	Silent      float64 `json:"silent"`  // seconds
	Longest     float64 `json:"longest"` // seconds of the longest pause
	PIDs        []PID   `json:"pids"`
}

// Watched describes a monitor: its interface and mode, and the streams that it follows.
type Watched struct {
	Dev, Mode, Behind string
	Silence           time.Duration
	Groups            []netip.AddrPort // none: all streams
	Begun             time.Duration    // on the clock of looks
}

// Report tells of a look; before is the look before, nil where there was none.
func (w *Watched) Report(before, now *Look) *Report {
	r := &Report{Dev: w.Dev, Mode: w.Mode, Behind: w.Behind, At: now.At, Totals: now.Totals,
		Streams: []StreamReport{}, Absent: []string{}}
	if before != nil {
		r.Seconds = (now.Clock - before.Clock).Seconds()
	}
	for i := range now.Streams {
		s := &now.Streams[i]
		r.Streams = append(r.Streams, w.stream(before.Of(s), s, now, r.Seconds))
	}
	for _, g := range w.Absent(now) {
		r.Absent = append(r.Absent, Group(g))
	}
	return r
}

// Absent returns the groups that have had no stream.
func (w *Watched) Absent(now *Look) (all []netip.AddrPort) {
	for _, g := range w.Groups {
		if !slices.ContainsFunc(now.Streams, func(s Stream) bool {
			return s.Dst.Addr() == g.Addr() && (g.Port() == 0 || s.Dst.Port() == g.Port())
		}) {
			all = append(all, g)
		}
	}
	return all
}

// GroupOf returns the group of those asked for that a stream is of, one with its port before one
// with any; false, with where it goes, if it is of none.
func GroupOf(s *Stream, groups []netip.AddrPort) (netip.AddrPort, bool) {
	for _, g := range []netip.AddrPort{s.Dst, netip.AddrPortFrom(s.Dst.Addr(), 0)} {
		if slices.Contains(groups, g) {
			return g, true
		}
	}
	return s.Dst, false
}

// Where there is no room, so many streams give way in one look: those that came for less than
// brief, and those that come too slowly, the slowest first. Else somebody who forges streams has
// all places, until these are forgotten, or for good. Each has events: more would fill the disk.
const (
	brief     = time.Second
	mostBrief = 64
)

// slowest is the least datagrams a second of a stream that keeps its place where there is no room:
// a program's clock comes ten times a second at least (H.222.0 2.7.2).
const slowest = 10

// pace returns the datagrams a second of a stream over all its life, and whether it has lived long
// enough to say.
func (l *Look) pace(s *Stream) (perSecond float64, known bool) {
	came := s.Datagrams + s.Fragments
	return float64(came) / max(s.Last-s.First, brief).Seconds(), l.Clock-s.First > brief
}

// Gone returns the streams to which nothing has come for longer than a time. Where datagrams found
// no place since the look before, those that give way are among them. Of each group that was asked
// for the one stays to which something came last, so that it is told since when nothing does;
// others would take the places of new ones, as a sender that begins anew has another port.
func (l *Look) Gone(after time.Duration, groups []netip.AddrPort, before *Look) (gone []Flow) {
	last := map[netip.AddrPort]*Stream{}
	for i := range l.Streams {
		s := &l.Streams[i]
		g, asked := GroupOf(s, groups)
		if asked && (last[g] == nil || s.Last > last[g].Last) {
			last[g] = s
		}
	}
	noRoom := before != nil && l.Totals.Unplaced > before.Totals.Unplaced
	type slow struct {
		pace float64
		Flow
	}
	var giveWay []slow
	for i := range l.Streams {
		s := &l.Streams[i]
		if g, _ := GroupOf(s, groups); last[g] == s {
			continue
		}
		quiet := l.Clock - s.Last
		pace, known := l.pace(s)
		switch {
		case quiet > after:
			gone = append(gone, s.Flow)
		case !noRoom || !known:
		case quiet > brief && s.Last-s.First < brief:
			giveWay = append(giveWay, slow{0, s.Flow})
		case pace < slowest:
			giveWay = append(giveWay, slow{pace, s.Flow})
		}
	}
	slices.SortStableFunc(giveWay, func(a, b slow) int { return cmp.Compare(a.pace, b.pace) })
	for _, s := range giveWay[:min(len(giveWay), mostBrief)] {
		gone = append(gone, s.Flow)
	}
	return gone
}

// ParseGroup reads where streams go, an address with a port or without; port 0 is every port.
func ParseGroup(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil && a.Zone() == "" {
		return netip.AddrPortFrom(a.Unmap(), 0), nil
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil || at.Port() == 0 || at.Addr().Zone() != "" {
		return at, fmt.Errorf("%s is no ADDRESS and no ADDRESS:PORT, such as 239.1.1.1:5004 or "+
			"[ff3e::1]:5004", diag.Quoted(s))
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// Group is one as it is written.
func Group(g netip.AddrPort) string {
	if g.Port() == 0 {
		return g.Addr().String()
	}
	return g.String()
}

// Of returns the same stream at an earlier look, without counters if there was none.
func (l *Look) Of(s *Stream) *Stream {
	if l != nil {
		at, ok := slices.BinarySearchFunc(l.Streams, s, func(a Stream, b *Stream) int {
			return a.Compare(&b.Flow)
		})
		if ok && l.Streams[at].First == s.First {
			return &l.Streams[at]
		}
	}
	return &Stream{Flow: s.Flow, First: s.First}
}

// signal says whether something came within the time that is called silence.
func (w *Watched) signal(s *Stream, now *Look) bool { return now.Clock-s.Last < w.Silence }

func (w *Watched) stream(b, s *Stream, now *Look, seconds float64) StreamReport {
	wall := func(t time.Duration) time.Time { return now.At.Add(t - now.Clock) }
	ms := func(d time.Duration) *float64 {
		if s.Windows == 0 {
			return nil
		}
		v := d.Seconds() * 1e3
		return &v
	}
	r := StreamReport{Src: s.Src.String(), Dst: s.Dst.String(), RTP: s.RTP, SSRC: s.SSRC,
		Signal: w.signal(s, now), Begun: wall(s.First), Last: wall(s.Last), Delay: ms(s.Delay),
		DelayMost: ms(s.DelayMost), Counts: s.Counts, Datagrams: s.Datagrams, Nulls: s.Nulls,
		Unsynced: s.Unsynced, Unfollowed: s.Unfollowed, RTPLost: s.RTPLost, RTPLate: s.RTPLate,
		RTPRestarts: s.RTPRestarts, Repeated: s.Repeated, Strange: s.Strange,
		Fragments: s.Fragments, Silences: s.Silences, Silent: s.Silent.Seconds(),
		Longest: s.Longest.Seconds(), PIDs: s.PIDs}
	if r.PIDs == nil {
		r.PIDs = []PID{}
	}
	for _, v := range []struct {
		id uint16
		to **int
	}{{s.VLAN, &r.VLAN}, {s.InnerVLAN, &r.InnerVLAN}} {
		if v.id != NoVLAN {
			id := int(v.id)
			*v.to = &id
		}
	}
	if s.MediaRate > 0 && s.RateBy != RateUnknown {
		rate := math.Round(s.MediaRate)
		r.MediaRate, r.MediaBy = &rate, s.RateBy.String()
	}
	if seconds > 0 {
		r.Bps = float64(s.Packets-b.Packets) * Bytes * 8 / seconds
		r.Loss = lost(b, s) / seconds
	}
	return r
}

// lost are packets that were lost between two looks, at least. Counters of four bits say too little
// where much is lost at once: sequence numbers of RTP say more.
func lost(b, s *Stream) float64 {
	n := float64(s.Missing - b.Missing)
	if s.Datagrams > 0 {
		each := float64(s.Packets) / float64(s.Datagrams)
		n = max(n, float64(s.RTPLost-b.RTPLost)*each)
	}
	return n
}

// Name names a stream by where it goes.
func (s *StreamReport) Name() string {
	name := s.Dst
	for _, v := range []*int{s.VLAN, s.InnerVLAN} {
		if v != nil {
			name += fmt.Sprintf(" vlan %d", *v)
		}
	}
	return name
}

// Notes say in words what stands in no column, for one stream.
func (s *StreamReport) Notes(at time.Time) (notes []string) {
	if !s.Signal {
		notes = append(notes, "no signal for "+
			at.Sub(s.Last).Round(100*time.Millisecond).String())
	}
	for _, n := range []struct {
		n    uint64
		text string
	}{
		{s.Silences, "pauses without signal"}, {s.RTPLate, "datagrams late"},
		{s.RTPRestarts, "restarts of RTP"}, {s.Repeated, "datagrams repeated"},
		{s.Duplicates, "duplicates"}, {s.Declared, "packets declare a discontinuity"},
		{s.Scrambled, "packets scrambled"}, {s.Errors, "packets marked as damaged"},
		{s.Unsynced, "packets without a sync byte"},
		{s.Strange, "datagrams that are no stream's"},
		{s.Fragments, "datagrams in fragments, not followed"},
		{s.Unfollowed, "packets of PIDs beyond 255, not followed"},
	} {
		if n.n > 0 {
			notes = append(notes, fmt.Sprintf("%d %s", n.n, n.text))
		}
	}
	return notes
}

// Notes say in words what is of no stream.
func (r *Report) Notes() (notes []string) {
	if r.Behind != "" {
		notes = append(notes, "behind "+r.Behind+": what that drops does not come here")
	}
	if len(r.Absent) > 0 {
		notes = append(notes, "no stream has come to "+strings.Join(r.Absent, ", "))
	}
	for _, n := range []struct {
		n    uint64
		text string
	}{
		{r.Totals.FEC, "datagrams of parity, which are no stream"},
		{r.Totals.Fragments, "later fragments, which are not followed"},
		{r.Totals.Unplaced, "datagrams of streams beyond --streams, not followed"},
	} {
		if n.n > 0 {
			notes = append(notes, fmt.Sprintf("%d %s", n.n, n.text))
		}
	}
	return notes
}
