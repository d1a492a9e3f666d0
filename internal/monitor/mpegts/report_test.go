package mpegts

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/openmetrics"
)

var watched = Watched{Dev: "eth1", Mode: "tcx", Silence: time.Second, Begun: time.Hour,
	Groups: []netip.AddrPort{netip.MustParseAddrPort("239.1.1.1:5004"),
		netip.AddrPortFrom(netip.MustParseAddr("239.1.1.9"), 0)}}

var epoch = time.Date(2026, 11, 29, 6, 0, 0, 0, time.UTC)

// looks are looks a second apart at one stream, each as change leaves it.
func looks(changes ...func(*Stream)) (all []*Look) {
	s := Stream{Flow: Flow{Src: netip.MustParseAddrPort("192.0.2.1:5000"),
		Dst: netip.MustParseAddrPort("239.1.1.1:5004"), VLAN: NoVLAN, InnerVLAN: NoVLAN},
		First: time.Hour, Last: time.Hour, Datagrams: 100, Counts: Counts{Packets: 700},
		PIDs: []PID{{PID: 0x100, Counts: Counts{Packets: 700}}}}
	for i, change := range changes {
		at := time.Duration(i) * time.Second
		s.PIDs = slices.Clone(s.PIDs)
		s.Last = time.Hour + at
		s.PIDs[0].Packets += 700
		s.Packets += 700
		s.Datagrams += 100
		change(&s)
		all = append(all, &Look{At: epoch.Add(at), Clock: time.Hour + at, Streams: []Stream{s}})
	}
	return all
}

func nothing(*Stream) {}

// stopped is a stream to which nothing has come for so many seconds.
func stopped(seconds int) func(*Stream) {
	return func(s *Stream) {
		s.Last -= time.Duration(seconds) * time.Second
		s.PIDs[0].Packets -= 700
		s.Packets -= 700
		s.Datagrams -= 100
	}
}

func TestEachChangeIsAnEvent(t *testing.T) {
	scrambled := func(s *Stream) { s.PIDs[0].Scrambled += 10 }
	for _, c := range []struct {
		name  string
		looks []*Look
		want  []string // kinds; a dot is another look
	}{
		{"nothing", looks(nothing, nothing, nothing), []string{Begins, ".", NoSignal, "."}},
		{"discontinuities", looks(nothing, nothing, nothing, func(s *Stream) {
			s.PIDs[0].Discontinuities += 2
			s.PIDs[0].Missing += 9
		}, nothing), []string{Begins, ".", NoSignal, ".", ".", Discontinuity, "."}},
		{"a loss that counters of four bits hide", looks(nothing, nothing, nothing,
			func(s *Stream) { s.RTP, s.RTPLost = true, 16 }, nothing),
			[]string{Begins, ".", NoSignal, ".", ".", Discontinuity, "."}},
		{"a loss that both show", looks(nothing, nothing, nothing, func(s *Stream) {
			s.RTP, s.RTPLost = true, 1
			s.PIDs[0].Discontinuities++
			s.PIDs[0].Missing += 7
		}), []string{Begins, ".", NoSignal, ".", ".", Discontinuity}},
		{"no signal, and again", looks(nothing, nothing, nothing, stopped(1), stopped(2),
			func(s *Stream) { s.Silences++; s.Silent += 3 * time.Second }),
			[]string{Begins, ".", NoSignal, ".", ".", NoSignal, ".", ".", Signal}},
		{"a pause between two looks", looks(nothing, nothing, nothing, func(s *Stream) {
			s.Silences++
			s.Silent += 1100 * time.Millisecond
		}), []string{Begins, ".", NoSignal, ".", ".", NoSignal, Signal}},
		{"scrambling", looks(nothing, nothing, scrambled, scrambled, nothing, nothing, scrambled),
			[]string{Begins, ".", NoSignal, ".", Scrambled, ".", ".", Clear, ".", ".", Scrambled}},
		{"damage", looks(nothing, nothing, func(s *Stream) {
			s.Errors++
			s.Unsynced++
			s.Fragments++
		}),
			[]string{Begins, ".", NoSignal, ".", Damaged, Fragmented}},
	} {
		var got []string
		var before *Look
		for _, l := range c.looks {
			if before != nil {
				got = append(got, ".")
			}
			for _, e := range watched.Events(before, l) {
				got = append(got, e.MPEGTS.Event)
			}
			before = l
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestSendersThatBeginAnewLeaveNoStreams: of a group that was asked for, the stream that came last
// is known until another comes; of what nobody asked for, none.
func TestSendersThatBeginAnewLeaveNoStreams(t *testing.T) {
	at := netip.MustParseAddrPort
	l := &Look{Clock: time.Hour}
	for _, s := range []struct {
		src, dst string
		ago      time.Duration
	}{
		{"192.0.2.1:5000", "239.1.1.1:5004", 30 * time.Minute},
		{"192.0.2.1:5001", "239.1.1.1:5004", 20 * time.Minute},
		{"192.0.2.1:5002", "239.1.1.9:6000", 20 * time.Minute},
		{"192.0.2.1:5003", "239.1.1.9:6002", 30 * time.Minute},
		{"192.0.2.1:5004", "239.7.7.7:5004", 20 * time.Minute},
		{"192.0.2.1:5005", "239.7.7.7:5004", 10 * time.Minute},
	} {
		l.Streams = append(l.Streams, Stream{Flow: Flow{Src: at(s.src), Dst: at(s.dst)},
			Last: l.Clock - s.ago})
	}
	ports := func(groups []netip.AddrPort) (out []uint16) {
		for _, f := range l.Gone(10*time.Minute, groups, nil) {
			out = append(out, f.Src.Port())
		}
		return out
	}
	if got := ports(watched.Groups); !slices.Equal(got, []uint16{5000, 5003, 5004}) {
		t.Errorf("%v are forgotten", got)
	}
	if got := ports(nil); !slices.Equal(got, []uint16{5000, 5001, 5002, 5003, 5004}) {
		t.Errorf("without groups %v are forgotten", got)
	}
	l.Streams[0].Last = l.Clock // it comes again
	if got := ports(watched.Groups); !slices.Equal(got, []uint16{5001, 5003, 5004}) {
		t.Errorf("%v are forgotten once another comes", got)
	}
}

// TestForgedStreamsKeptNewOnesOut: whoever sent a datagram for each of the places kept a sender
// that began anew from being followed for ten minutes, and two datagrams a second did so for ever.
func TestForgedStreamsKeptNewOnesOut(t *testing.T) {
	group := watched.Groups[:1]
	stream := func(port uint16, lasted, quiet time.Duration) Stream {
		return Stream{Flow: Flow{Src: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port),
			Dst: group[0]}, First: time.Hour - quiet - lasted, Last: time.Hour - quiet,
			Datagrams: 1 + 100*uint64(lasted.Seconds())}
	}
	l := &Look{Clock: time.Hour, Totals: Totals{Unplaced: 7}, Streams: []Stream{
		stream(1, 0, 0),                   // begins
		stream(2, time.Hour, time.Minute), // has paused
	}}
	for i := range 100 {
		l.Streams = append(l.Streams, stream(uint16(100+i), time.Millisecond, 2*time.Second))
	}
	before := &Look{Totals: Totals{Unplaced: 5}}
	gone := l.Gone(10*time.Minute, group, before)
	if len(gone) != mostBrief || gone[0].Src.Port() != 100 {
		t.Errorf("without room %d give way: %v", len(gone), gone)
	}
	before.Totals = l.Totals
	for _, before := range []*Look{nil, before} {
		if gone := l.Gone(10*time.Minute, group, before); len(gone) > 0 {
			t.Errorf("with room %d give way", len(gone))
		}
	}
}

// crowd has places for streams, as the program has, and a clock.
type crowd struct {
	Look
	places int
	at     map[Flow]*Stream
}

// comes has a datagram come.
func (c *crowd) comes(f Flow) {
	s := c.at[f]
	if s == nil {
		if len(c.at) == c.places {
			c.Totals.Unplaced++
			return
		}
		s = &Stream{Flow: f, First: c.Clock}
		c.at[f] = s
	}
	s.Last = c.Clock
	s.Datagrams++
}

// second has datagrams come in a drawn order, within a second, and forgets what is gone then.
func (c *crowd) second(rnd *rand.Rand, all []Flow) {
	before := c.Look
	rnd.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	for _, f := range all {
		c.Clock += time.Second / time.Duration(len(all))
		c.comes(f)
	}
	c.Streams = nil
	for _, s := range c.at {
		c.Streams = append(c.Streams, *s)
	}
	slices.SortFunc(c.Streams, func(a, b Stream) int { return a.Compare(&b.Flow) })
	for _, f := range c.Gone(10*time.Minute, nil, &before) {
		delete(c.at, f)
	}
}

// TestOneDatagramASecondKeptAPlace: whoever forged so many streams as there are places, and sent to
// each once a second, had them for good, and no other stream was followed.
func TestOneDatagramASecondKeptAPlace(t *testing.T) {
	port := func(n int) Flow {
		at := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(n))
		return Flow{Src: at, Dst: netip.MustParseAddrPort("239.1.1.1:5004")}
	}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := &crowd{places: 256, at: map[Flow]*Stream{}}
	var forged, steady []Flow
	for n := range c.places {
		forged = append(forged, port(n))
	}
	for range 400 { // 4 Mbit/s in datagrams of seven packets
		steady = append(steady, port(60_000))
	}
	for range 30 {
		c.second(rnd, slices.Clone(forged))
	}
	if len(c.at) != c.places {
		t.Fatalf("with room for all, %d of %d are followed", len(c.at), c.places)
	}
	next := 1000
	seconds, followed := 0, 0
	for range 60 {
		all := slices.Concat(forged, steady)
		for range 1000 { // and from ports that nobody has seen
			next++
			all = append(all, port(next))
		}
		c.second(rnd, all)
		if seconds++; c.at[steady[0]] != nil {
			followed++
		} else if followed > 0 {
			t.Fatalf("seed %d: after %d seconds it is followed no more", seed, seconds)
		}
	}
	if followed < 40 {
		t.Errorf("seed %d: it was followed in %d of %d seconds", seed, followed, seconds)
	}
}

func TestAnEventIsARecord(t *testing.T) {
	l := looks(nothing, func(s *Stream) { s.PIDs[0].Discontinuities++; s.PIDs[0].Missing += 3 })
	e := watched.Events(l[0], l[1])[0]
	const want = `{"timestamp":"2026-11-29T06:00:01.000000+0000","event_type":"mpegts",` +
		`"src_ip":"192.0.2.1","src_port":5000,"dest_ip":"239.1.1.1","dest_port":5004,` +
		`"proto":"UDP","in_iface":"eth1","mpegts":{"event":"discontinuity","pid":256,` +
		`"discontinuities":1,"missing":3}}`
	if got := string(e.EVE()); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestAnEventInWords has one of each number.
func TestAnEventInWords(t *testing.T) {
	pid := uint16(0x100)
	for _, c := range []struct {
		told Told
		want string
	}{
		{Told{Discontinuities: 1, Missing: 2, RTPLost: 1, PID: &pid},
			"1 discontinuity in PID 0x100, 2 packets missing at least; RTP lacks 1 datagram of " +
				"the stream"},
		{Told{Discontinuities: 2, Missing: 1, PID: &pid},
			"2 discontinuities in PID 0x100, 1 packet missing at least"},
		{Told{RTPLost: 16}, "RTP lacks 16 datagrams of the stream"},
	} {
		c.told.Event = Discontinuity
		e := Event{Dev: "eth1", MPEGTS: c.told}
		if got := e.String(); got != "eth1: "+c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestRatesAreOfTheTimeBetweenLooks: also the loss rate, which sequence numbers of RTP tell where
// counters of four bits cannot.
func TestRatesAreOfTheTimeBetweenLooks(t *testing.T) {
	l := looks(nothing, func(s *Stream) { s.RTP, s.RTPLost, s.Missing = true, 20, 12 })
	r := watched.Report(l[0], l[1])
	s := r.Streams[0]
	if r.Seconds != 1 || s.Bps != 700*Bytes*8 || s.Loss != 20*7 || !s.Signal || s.Delay != nil {
		t.Errorf("%+v", s)
	}
	if len(r.Absent) != 1 || r.Absent[0] != "239.1.1.9" {
		t.Errorf("absent: %q", r.Absent)
	}
	if first := watched.Report(nil, l[0]); first.Streams[0].Bps != 0 || first.Seconds != 0 {
		t.Errorf("a first look has rates: %+v", first.Streams[0])
	}
	b, err := json.Marshal(watched.Report(nil, &Look{}))
	if err != nil || !strings.Contains(string(b), `"streams":[]`) {
		t.Errorf("%s, %v", b, err)
	}
	text := string(openmetrics.Append(nil, openmetrics.OpenMetrics, r.Metrics()))
	for _, want := range []string{
		`levee_mpegts_signal{dev="eth1",dst="239.1.1.1:5004",src="192.0.2.1:5000"} 1`,
		`levee_mpegts_rtp_lost_datagrams_total{dev="eth1",dst="239.1.1.1:5004",` +
			`src="192.0.2.1:5000"} 20`,
		`src="192.0.2.1:5000",pid="256"} 2100`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s:\n%s", want, text)
		}
	}
}
