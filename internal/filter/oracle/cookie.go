package oracle

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/packet/a2s"
)

// cookies holds the clients whose SYNs and queries are answered in the host's place.
type cookies struct {
	meters map[*policy.Cookie]*meter
	given  map[connectionKey][]answer
	proven map[netip.Addr]time.Time // until when
	macs   [][6]byte                // whose frames are for this machine; none are all
	none   []netip.Addr             // that belong to no single host
}

// meter counts the packets that come to a rule which acts above a rate.
type meter struct {
	began time.Time // the second that is counted
	count uint64
	until time.Time // the rule acts
	last  time.Time // answer, of a cookie
}

// above counts a packet, and says whether the rule acts.
func (m *meter) above(rate uint64, now time.Time) bool {
	if now.Sub(m.began) >= time.Second {
		m.began, m.count = now, 0
	}
	if m.count++; m.count > rate {
		m.until = now.Add(actsOn)
	}
	return now.Before(m.until)
}

// answer is a number by which a client may prove itself.
type answer struct {
	number uint32
	at     time.Time
}

const (
	provenFor   = 10 * time.Minute
	numberHolds = 64 * time.Second // at least; for twice as long at most
	numberEnds  = 2 * numberHolds
	actsOn      = 2 * time.Second
)

func newCookies() *cookies {
	c := &cookies{}
	c.forget()
	return c
}

func (c *cookies) forget() {
	c.meters, c.given = map[*policy.Cookie]*meter{}, map[connectionKey][]answer{}
	c.proven = map[netip.Addr]time.Time{}
}

// fate is a cookie's judgement on a packet.
type fate int

const (
	foreign   fate = iota // no whole segment of TCP, or datagram of UDP
	elsewhere             // in a frame for another machine
	untouched             // neither SYN nor RST, nor query
	below                 // a SYN or query, while none are answered
	known                 // one of a source that is proven
	unproven              // an RST that proves nothing
	replied               // a SYN or query, in the host's place
	spent                 // an RST that has proven its source, or what nobody may answer
)

// decides says whether the packet goes no further.
func (f fate) decides() bool { return f >= replied }

// fates say what of a packet goes on, and why.
var fates = [replied]string{
	foreign: "goes on: a cookie acts on whole TCP segments, or queries, only, not within PPPoE " +
		"or MPLS",
	elsewhere: "goes on: a cookie answers for this machine, and the frame is for another",
	untouched: "goes on: a cookie answers SYNs and judges RSTs, and this is neither",
	below:     "goes on: packets are answered above the rate only, and this one is below it",
	known:     "goes on: its source has proven that it is there",
	unproven:  "goes on: this RST resets nothing that a cookie has sent",
}

// judge says what a cookie makes of a packet that its rule matches.
func (c *cookies) judge(k *policy.Cookie, pkt *packet.Packet, frame []byte, now time.Time) fate {
	whole := pkt.Transport == packet.TCPTransport
	if k.Answers != action.SYNs {
		whole = isUDP(pkt)
	}
	if !whole || pkt.Fragment || pkt.Carried {
		return foreign
	}
	if !c.ours(pkt) {
		return elsewhere
	}
	m := c.meters[k]
	if m == nil {
		m = &meter{}
		c.meters[k] = m
	}
	flags := pkt.Flags & (packet.FIN | packet.SYN | packet.RST | packet.ACK)
	switch {
	case k.Answers != action.SYNs:
		return c.ask(k, m, pkt, true, now)
	case flags&packet.SYN != 0 && flags&packet.ACK == 0:
		return c.ask(k, m, pkt, flags == packet.SYN, now)
	case flags == packet.RST:
		if now.Sub(m.last) > numberEnds {
			return unproven
		}
		number := binary.BigEndian.Uint32(frame[pkt.TransportOffset+4:])
		for _, a := range c.given[clientOf(pkt)] {
			if a.number == number && now.Sub(a.at) <= numberHolds {
				c.proven[pkt.Src] = now.Add(provenFor)
				return spent
			}
		}
		return unproven
	}
	return untouched
}

// ask says what becomes of a SYN, or of a query, and whether an answer to it may prove its source.
func (c *cookies) ask(k *policy.Cookie, m *meter, pkt *packet.Packet, may bool,
	now time.Time) fate {
	switch {
	case !m.above(k.Above, now):
		return below
	// An A2S query of a flow that is proven does not come here.
	case k.Answers != action.A2SQueries && now.Before(c.proven[pkt.Src]):
		return known
	case !may || !betweenHosts(pkt) || slices.Contains(c.none, pkt.Dst) ||
		slices.Contains(c.none, pkt.Src):
		return spent
	}
	m.last = now
	return replied
}

// SetOwn sets the addresses to which a SYN may go: in frames to which addresses, where there are
// any, and to which addresses not.
func (e *Evaluator) SetOwn(macs [][6]byte, none []netip.Addr) {
	e.cookies.macs, e.cookies.none = nil, none
	for _, m := range macs {
		if e.link == packet.Ethernet {
			e.cookies.macs = append(e.cookies.macs, m)
		}
	}
}

// ours says whether a packet is in a frame for this machine.
func (c *cookies) ours(pkt *packet.Packet) bool {
	if len(c.macs) == 0 {
		return true
	}
	var mac [8]byte
	binary.BigEndian.PutUint64(mac[:], pkt.DstMAC)
	return slices.Contains(c.macs, [6]byte(mac[2:]))
}

// betweenHosts says whether a packet goes from one host to one other (RFC 9293 section 3.9.2.3).
func betweenHosts(pkt *packet.Packet) bool {
	const group = 1 << 40
	for _, a := range []netip.Addr{pkt.Src, pkt.Dst} {
		b := a.AsSlice()
		if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.Is4() && b[0] == 0 ||
			a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
			return false
		}
	}
	return pkt.SrcMAC&group == 0 && pkt.DstMAC&group == 0
}

// clientOf names who sent a packet, and to whom.
func clientOf(pkt *packet.Packet) connectionKey {
	return connectionKey{pkt.Proto, pkt.Dst, pkt.Src, pkt.DstPort, pkt.SrcPort}
}

// Answered tells the evaluator of the frame by which a packet was answered in the host's place. The
// number that it has is known to nobody but who made it.
func (e *Evaluator) Answered(frame []byte) {
	var pkt packet.Packet
	e.link.Decode(frame, &pkt)
	at := pkt.TransportOffset + 8
	if pkt.Transport != packet.TCPTransport {
		if number, ok := a2s.Number(frame[at:][:pkt.UDPPayload]); ok && e.echoes != nil {
			e.echoes.ask(&pkt, number, e.now())
		}
		return
	}
	k := connectionKey{pkt.Proto, pkt.Src, pkt.Dst, pkt.SrcPort, pkt.DstPort}
	e.cookies.given[k] = append(e.cookies.given[k],
		answer{binary.BigEndian.Uint32(frame[at:]), e.now()})
}
