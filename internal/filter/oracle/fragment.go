package oracle

import (
	"net/netip"
	"slices"
	"time"

	"levee/internal/lang/action"
	"levee/internal/packet"
)

// datagramKey names a datagram that comes in fragments: RFC 791 section 3.2, RFC 8200 section 4.5.
type datagramKey struct {
	src, dst netip.Addr
	id       uint32
	proto    uint8 // of IPv4
}

// datagram is the state of one fragmented datagram.
type datagram struct {
	state fragmentState
	ends  time.Time
	total int // bytes in all, 0 while the last fragment has not passed
	ahead int // fragments that passed before the first
	parts []part
	spare int // bytes above fragmentBytes for each fragment, in eights
}

// part is bytes of a datagram that have passed.
type part struct{ from, to int }

type fragmentState int

const (
	firstDropped fragmentState = iota + 1
	spoilt                     // parts overlapped: nothing passes any more
	firstToCome
	firstPassed
)

const (
	datagramLease = 30 * time.Second
	mostParts     = 8
	fragmentBytes = 512 // a fragment for each of these, and fragmentsMore
	fragmentsMore = 8
	aheadBurst    = 512
	aheadCost     = time.Second / 32
)

// datagrams holds the fragmented datagrams whose fragments came lately.
type datagrams struct {
	of    map[datagramKey]*datagram
	until time.Time // the budget of fragments ahead of their first is spent
}

func datagramOf(p *packet.Packet) datagramKey {
	k := datagramKey{src: p.Src, dst: p.Dst, id: p.Datagram}
	if p.Family == packet.IPv4 {
		k.proto = p.Proto
	}
	return k
}

func (d *datagrams) find(k datagramKey, now time.Time) *datagram {
	g := d.of[k]
	if g == nil || !g.ends.After(now) {
		return nil
	}
	return g
}

// spend takes a fragment from the budget of those that come before their first.
func (d *datagrams) spend(now time.Time) bool {
	until := d.until
	if until.Before(now) {
		until = now
	}
	if until.Sub(now) > (aheadBurst-1)*aheadCost {
		return false
	}
	d.until = until.Add(aheadCost)
	return true
}

// fits is the outcome of adding a part.
type fits int

const (
	noRoom fits = iota
	fit
	overlaps
	again // all of it has passed, perhaps with other bytes
)

// endOf returns where the data of a fragment ends in the datagram. All but the last have whole
// units of 8 bytes (RFC 791 section 3.2); Linux cuts off what is more.
func endOf(p *packet.Packet) int {
	end := p.FragmentAt + p.FragmentLen
	if p.MoreFragments {
		end &^= 7
	}
	return end
}

// spareOf returns what a fragment adds to that of its datagram.
func spareOf(from, to int) int { return (to-from)/8 - fragmentBytes/8 }

// add notes that a fragment passes.
func (g *datagram) add(from, to int, more bool) fits {
	if g.total != 0 && (to > g.total || !more && to != g.total) {
		return overlaps
	}
	for _, p := range g.parts {
		if from >= p.from && to <= p.to {
			return again
		}
	}
	for _, p := range g.parts {
		if from < p.to && p.from < to || !more && p.to > to {
			return overlaps
		}
	}
	if to == 0 {
		return fit // nothing
	}
	parts := append(slices.Clone(g.parts), part{from, to})
	slices.SortFunc(parts, func(a, b part) int { return a.from - b.from })
	merged := parts[:1]
	for _, p := range parts[1:] {
		if last := &merged[len(merged)-1]; last.to == p.from {
			last.to = p.to
		} else {
			merged = append(merged, p)
		}
	}
	if len(merged) > mostParts {
		return noRoom
	}
	if !more {
		g.total = to
	}
	g.parts = merged
	g.spare += spareOf(from, to)
	return fit
}

// complete says whether all of a datagram has passed.
func (g *datagram) complete() bool {
	return g.state == firstPassed && g.total > 0 && len(g.parts) == 1 &&
		g.parts[0] == part{0, g.total}
}

// later says why a fragment with an offset does not pass, and whether it came ahead of its first.
func (d *datagrams) later(p *packet.Packet, now time.Time) (bad packet.Malformed, ahead bool) {
	least := map[uint8]int{packet.ProtoTCP: 20, packet.ProtoSCTP: 12, packet.ProtoDCCP: 12}
	if p.FragmentAt < least[p.Proto] || endOf(p) == p.FragmentAt {
		return packet.FragmentTiny, false
	}
	k := datagramOf(p)
	g := d.find(k, now)
	if g != nil && (g.state == firstDropped || g.state == spoilt) {
		return packet.FragmentOrphan, false
	}
	ahead = g == nil || g.state == firstToCome
	if g != nil && g.spare+spareOf(p.FragmentAt, endOf(p)) < -fragmentsMore*fragmentBytes/8 {
		return packet.FragmentOrphan, ahead
	}
	if ahead {
		if !d.spend(now) {
			return packet.FragmentOrphan, ahead
		}
		if g == nil {
			g = &datagram{state: firstToCome, ends: now.Add(datagramLease)}
			d.of[k] = g
		}
	}
	switch g.add(p.FragmentAt, endOf(p), p.MoreFragments) {
	case noRoom:
		return packet.FragmentOrphan, ahead
	case overlaps:
		g.state = spoilt
		return packet.FragmentOverlap, ahead
	case again:
		return packet.FragmentOverlap, ahead
	}
	if ahead {
		g.ahead++
	}
	if g.complete() {
		delete(d.of, k)
	}
	return packet.WellFormed, ahead
}

// first notes what has become of a first fragment, and says whether it meets what has passed, or
// has no room beside it.
func (d *datagrams) first(p *packet.Packet, passes bool, now time.Time) (overlap bool) {
	k := datagramOf(p)
	g := d.find(k, now)
	if g == nil {
		g = &datagram{ends: now.Add(datagramLease)}
		d.of[k] = g
	}
	if g.state == spoilt {
		return passes
	}
	if !passes {
		if g.state != firstPassed {
			g.state = firstDropped // another may pass, beside what has
		}
		return false
	}
	was := g.state
	g.state = firstPassed
	switch g.add(0, endOf(p), true) {
	case overlaps, noRoom:
		g.state = spoilt
		return true
	case again:
		g.state = was
		return true
	}
	if was == firstToCome {
		d.until = d.until.Add(-time.Duration(g.ahead) * aheadCost)
	}
	g.ahead = 0
	if g.complete() {
		delete(d.of, k)
	}
	return false
}

// track does what the rule of a slot says with a fragment, and says whether that decides it.
func (e *Evaluator) track(pkt *packet.Packet, slot int, res *Result) bool {
	if !pkt.LaterFragment {
		res.Within = append(res.Within, slot)
		return false
	}
	if bad, ahead := e.frags.later(pkt, e.now()); bad != packet.WellFormed {
		res.Within = append(res.Within, slot)
		res.refuse(bad)
	} else {
		res.Slot, res.Action, res.Ahead = slot, action.Pass, ahead
	}
	return true
}

// noteFirst notes what has become of a first fragment, which is refused if it overlaps what has
// passed.
func (e *Evaluator) noteFirst(pkt *packet.Packet, res *Result) {
	if e.frags.first(pkt, res.passes(), e.now()) {
		res.Within = append(res.Within, res.Slot)
		res.refuse(packet.FragmentOverlap)
	}
}

// refuse drops a packet for what other fragments show of it.
func (r *Result) refuse(bad packet.Malformed) {
	r.Slot, r.Action, r.Ring, r.Malformed = bad.Slot(), action.Drop, nil, bad
}
