package mpegts

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"levee/internal/quantity"
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

// Told holds the figures of an event on a stream; counts are since the look before.
type Told struct {
	Event           string  `json:"event"`
	PID             *uint16 `json:"pid,omitempty"` // if it is of one; what RTP alone shows is not
	Discontinuities uint64  `json:"discontinuities,omitempty"`
	Missing         uint64  `json:"missing,omitempty"`
	RTPLost         uint64  `json:"rtp_lost,omitempty"`
	Packets         uint64  `json:"packets,omitempty"`
	Silent          float64 `json:"silent,omitempty"` // seconds
}

// eveTime is the form in which Suricata writes times.
const eveTime = "2006-01-02T15:04:05.000000-0700"

// Events returns what became so between two looks, by stream. Each discontinuity of each PID is in
// one of them, each loss that RTP shows, and each pause: they come from counters.
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
	lostRTP, discontinuous := s.RTPLost-b.RTPLost, false
	for i := range s.PIDs {
		p := &s.PIDs[i]
		was := b.pid(p.PID)
		if n := p.Discontinuities - was.Discontinuities; n > 0 {
			discontinuous = true
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
	if lostRTP > 0 && !discontinuous { // counters of four bits hide what is lost by sixteens
		add(Discontinuity, func(t *Told) { t.RTPLost = lostRTP })
	}
	if n := s.Errors - b.Errors + s.Unsynced - b.Unsynced; n > 0 {
		add(Damaged, func(t *Told) { t.Packets = n })
	}
	if s.Fragments > b.Fragments {
		add(Fragmented, func(t *Told) { t.Packets = s.Fragments - b.Fragments })
	}
	return all
}

// pid returns what is known of a PID, without counters if that is nothing.
func (s *Stream) pid(n uint16) PID {
	for _, p := range s.PIDs {
		if p.PID == n {
			return p
		}
	}
	return PID{PID: n}
}

// EVE returns the record of an event, without a newline.
func (e *Event) EVE() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // texts and numbers alone
	}
	return b
}

// String returns the event in words.
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
		var what []string
		if t.Discontinuities > 0 {
			what = append(what, fmt.Sprintf("%s%s, %s missing at least",
				quantity.Plural(t.Discontinuities, "discontinuity"), pid,
				quantity.Plural(t.Missing, "packet")))
		}
		if t.RTPLost > 0 {
			what = append(what, fmt.Sprintf("RTP lacks %s of the stream",
				quantity.Plural(t.RTPLost, "datagram")))
		}
		return out + ": " + strings.Join(what, "; ")
	case Scrambled:
		return fmt.Sprintf("%s: %s scrambled%s", out, quantity.Plural(t.Packets, "packet"), pid)
	case Clear:
		return fmt.Sprintf("%s: clear again%s", out, pid)
	case Damaged:
		return fmt.Sprintf("%s: %s damaged", out, quantity.Plural(t.Packets, "packet"))
	case Fragmented:
		return fmt.Sprintf("%s: %s in fragments, not followed", out,
			quantity.Plural(t.Packets, "datagram"))
	case NoRoom:
		return fmt.Sprintf("%s: %s of streams beyond --streams", out,
			quantity.Plural(t.Packets, "datagram"))
	}
	return out + ": " + t.Event
}
