package mpegts

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// Kinds of events.
const (
	Begins        = "stream"        // a stream that was not known
	Discontinuity = "discontinuity" // that nothing declares, with the packets that are missing
	NoSignal      = "no_signal"     // nothing came for as long as is called silence
	Signal        = "signal"        // something comes again
	Scrambled     = "scrambled"     // packets are scrambled that were clear
	Clear         = "clear"         // none is scrambled any more
	Damaged       = "damaged"       // packets that say so, or have lost their sync byte
	Fragmented    = "fragments"     // datagrams in fragments, which are not followed
	NoRoom        = "no_room"       // streams beyond the most
)

// Event is something that became so between two looks. Its JSON is a record as Suricata writes it
// (EVE), so that sources of the agent read it.
type Event struct {
	Time     time.Time `json:"-"`
	Stamp    string    `json:"timestamp"`
	Type     string    `json:"event_type"` // mpegts
	SrcIP    string    `json:"src_ip,omitempty"`
	SrcPort  uint16    `json:"src_port,omitempty"`
	DestIP   string    `json:"dest_ip,omitempty"`
	DestPort uint16    `json:"dest_port,omitempty"` // 0: any
	Proto    string    `json:"proto"`
	Dev      string    `json:"in_iface"`
	MPEGTS   Told      `json:"mpegts"`
}

// Told is what an event says of a stream; counts are since the look before.
type Told struct {
	Event           string  `json:"event"`
	PID             *uint16 `json:"pid,omitempty"` // if it is of one
	Discontinuities uint64  `json:"discontinuities,omitempty"`
	Missing         uint64  `json:"missing,omitempty"`
	RTPLost         uint64  `json:"rtp_lost,omitempty"`
	Packets         uint64  `json:"packets,omitempty"`
	Silent          float64 `json:"silent,omitempty"` // seconds
}

// eveTime is how Suricata writes times.
const eveTime = "2006-01-02T15:04:05.000000-0700"

// Events are what became so between two looks, by stream. Each discontinuity of each PID is in one
// of them, and each pause: they come from counters.
func (w *Watched) Events(before, now *Look) (all []Event) {
	for i := range now.Streams {
		s := &now.Streams[i]
		all = append(all, w.events(before.Of(s), s, before, now)...)
	}
	if before != nil && now.Totals.Unplaced > before.Totals.Unplaced {
		e := w.event(now, nil, NoRoom)
		e.MPEGTS.Packets = now.Totals.Unplaced - before.Totals.Unplaced
		all = append(all, e)
	}
	// What was asked for and has never come has no signal, once it could have come.
	if before != nil && now.Clock-w.Begun >= w.Silence && before.Clock-w.Begun < w.Silence {
		for _, g := range w.Absent(now) {
			e := w.event(now, nil, NoSignal)
			e.DestIP, e.DestPort = g.Addr().String(), g.Port()
			all = append(all, e)
		}
	}
	return all
}

func (w *Watched) event(now *Look, s *Stream, what string) Event {
	e := Event{Time: now.At, Stamp: now.At.Format(eveTime), Type: "mpegts", Proto: "UDP",
		Dev: w.Dev, MPEGTS: Told{Event: what}}
	if s != nil {
		e.SrcIP, e.SrcPort = s.Src.Addr().String(), s.Src.Port()
		e.DestIP, e.DestPort = s.Dst.Addr().String(), s.Dst.Port()
	}
	return e
}

func (w *Watched) events(b, s *Stream, before, now *Look) (all []Event) {
	add := func(what string, fill func(*Told)) {
		e := w.event(now, s, what)
		if fill != nil {
			fill(&e.MPEGTS)
		}
		all = append(all, e)
	}
	if b.Datagrams+b.Fragments == 0 {
		add(Begins, nil)
	}
	// A pause that ended between two looks is told with how long it was.
	is, was := w.signal(s, now), before == nil || b.Last == 0 || before.Clock-b.Last < w.Silence
	if s.Silences > b.Silences {
		if was {
			add(NoSignal, nil)
		}
		add(Signal, func(t *Told) { t.Silent = (s.Silent - b.Silent).Seconds() })
		was = true
	}
	if was && !is {
		add(NoSignal, func(t *Told) { t.Silent = (now.Clock - s.Last).Seconds() })
	}
	lostRTP := s.RTPLost - b.RTPLost
	for i := range s.PIDs {
		p := &s.PIDs[i]
		was := b.pid(p.PID)
		if n := p.Discontinuities - was.Discontinuities; n > 0 {
			add(Discontinuity, func(t *Told) {
				t.PID, t.Discontinuities, t.Missing = &p.PID, n, p.Missing-was.Missing
				t.RTPLost = lostRTP
			})
		}
		packets := p.Packets - was.Packets
		scrambled := p.Scrambled - was.Scrambled
		switch {
		case scrambled > 0 && (was.Scrambled == 0 || was.Clear):
			add(Scrambled, func(t *Told) { t.PID, t.Packets = &p.PID, scrambled })
		case packets > 0 && scrambled == 0 && was.Scrambled > 0 && !was.Clear:
			add(Clear, func(t *Told) { t.PID = &p.PID })
		}
		p.Clear = scrambled == 0 && (packets > 0 || was.Clear)
	}
	if n := s.Errors - b.Errors + s.Unsynced - b.Unsynced; n > 0 {
		add(Damaged, func(t *Told) { t.Packets = n })
	}
	if s.Fragments > b.Fragments {
		add(Fragmented, func(t *Told) { t.Packets = s.Fragments - b.Fragments })
	}
	return all
}

// pid is what is known of a PID, without counters if that is nothing.
func (s *Stream) pid(n uint16) PID {
	for _, p := range s.PIDs {
		if p.PID == n {
			return p
		}
	}
	return PID{PID: n}
}

// EVE is the record of an event, without a newline.
func (e *Event) EVE() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // texts and numbers alone
	}
	return b
}

// String is the event in words.
func (e *Event) String() string {
	t := &e.MPEGTS
	out := e.Dev
	if e.DestIP != "" {
		if e.DestPort != 0 {
			out += " " + netip.AddrPortFrom(netip.MustParseAddr(e.DestIP), e.DestPort).String()
		} else {
			out += " " + e.DestIP
		}
	}
	if e.SrcIP != "" {
		out += " from " + e.SrcIP
	}
	pid := ""
	if t.PID != nil {
		pid = fmt.Sprintf(" in PID %#x", *t.PID)
	}
	seconds := time.Duration(t.Silent * 1e9).Round(time.Millisecond)
	switch t.Event {
	case Begins:
		return out + ": a stream"
	case NoSignal:
		if t.Silent > 0 {
			return fmt.Sprintf("%s: no signal for %s", out, seconds)
		}
		return out + ": no signal"
	case Signal:
		return fmt.Sprintf("%s: signal, after %s without", out, seconds)
	case Discontinuity:
		out += fmt.Sprintf(": %d discontinuities%s, %d packets missing at least",
			t.Discontinuities, pid, t.Missing)
		if t.RTPLost > 0 {
			out += fmt.Sprintf("; RTP lacks %d datagrams of the stream", t.RTPLost)
		}
		return out
	case Scrambled:
		return fmt.Sprintf("%s: %d packets scrambled%s", out, t.Packets, pid)
	case Clear:
		return fmt.Sprintf("%s: clear again%s", out, pid)
	case Damaged:
		return fmt.Sprintf("%s: %d packets damaged", out, t.Packets)
	case Fragmented:
		return fmt.Sprintf("%s: %d datagrams in fragments, not followed", out, t.Packets)
	case NoRoom:
		return fmt.Sprintf("%s: %d datagrams of streams beyond --streams", out, t.Packets)
	}
	return out + ": " + t.Event
}
