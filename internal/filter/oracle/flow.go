package oracle

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"levee/internal/packet"
)

// connection is the state of one connection. It ends by itself.
type connection struct {
	state         state
	finIn, finOut bool
	proof         uint32 // what the other side has to acknowledge
	sent          uint32 // blocks of data that have left, which it may acknowledge in part
	ends          time.Time
}

type state int

const (
	opening  state = iota + 1 // TCP: a SYN has left
	answered                  // TCP: a SYN-ACK has left
	older                     // TCP: a segment has left that belongs to nothing known
	open                      // TCP: the other side has acknowledged what has left
	closing                   // TCP: FIN both ways
	reset                     // TCP: a RST has left
	oneWay                    // UDP: this side began, and nothing has come back
	twoWay                    // UDP: this side began
	stranger                  // UDP: the other side began
	group                     // UDP: a port has asked a group, or a group has been asked
	echo                      // an ICMP echo request has left
)

// leases are the times that each state lasts without a packet, by docs/reference/connections.md
// "Connections", and the second in which they are not renewed again.
var leases = map[state]time.Duration{
	opening: 241 * time.Second, answered: 241 * time.Second, older: 241 * time.Second,
	open:    7441 * time.Second,
	closing: 241 * time.Second, reset: 241 * time.Second, oneWay: 121 * time.Second,
	twoWay: 301 * time.Second, stranger: 121 * time.Second, group: 11 * time.Second,
	echo: 61 * time.Second,
}

// connectionKey names a connection by the side that the policy is for and the other side. Of an
// echo both ports are its identifier.
type connectionKey struct {
	proto                 uint8
	local, remote         netip.Addr
	localPort, remotePort uint16
}

// become gives a connection a state. What leaves renews it, if it is as it was, once a second.
func (c *connection) become(next connection, now time.Time) {
	next.ends = c.ends
	if lease := leases[next.state]; next != *c || lease-c.ends.Sub(now) >= time.Second {
		next.ends = now.Add(lease)
	}
	*c = next
}

func (e *Evaluator) connection(k connectionKey) *connection {
	c := e.flows[k]
	if c == nil || !c.ends.After(e.now()) {
		return nil
	}
	return c
}

// left notes a frame that has left by the interface.
func (e *Evaluator) left(frame []byte) {
	var pkt packet.Packet
	e.link.Decode(frame, &pkt)
	if pkt.Malformed != packet.WellFormed {
		return
	}
	if e.echoes != nil {
		e.echoes.leave(&pkt, frame, e.now())
	}
	if e.streams != nil {
		e.streams.leave(&pkt, frame, e.now())
	}
	k := connectionKey{proto: pkt.Proto, local: pkt.Src, remote: pkt.Dst,
		localPort: pkt.SrcPort, remotePort: pkt.DstPort}
	next := connection{}
	switch {
	case pkt.Transport == packet.TCPTransport:
		var ok bool
		if next, ok = leaving(e.connection(k), &pkt, frame); !ok {
			return
		}
	case isUDP(&pkt):
		e.asks(&pkt)
		next.state = oneWay
		if c := e.connection(k); c != nil {
			next.state = c.state
		}
	case pkt.Transport == packet.ICMPTransport && pkt.Type == 8 && pkt.Code == 0,
		pkt.Transport == packet.ICMP6Transport && pkt.Type == 128 && pkt.Code == 0:
		k.localPort = binary.BigEndian.Uint16(frame[pkt.TransportOffset+4:])
		next.state = echo
	default:
		return
	}
	e.note(k, next)
}

// note has a connection be next.
func (e *Evaluator) note(k connectionKey, next connection) {
	c := e.connection(k)
	if c == nil {
		c = &connection{}
		e.flows[k] = c
	}
	c.become(next, e.now())
}

// groupKey identifies the answers to a group that a port has asked.
func groupKey(local netip.Addr, port uint16) connectionKey {
	return connectionKey{proto: packet.ProtoUDP, local: local, localPort: port}
}

// asks notes that a port has asked a group. Where both ports are the same, answers go to the group
// as well, if routers let no others in.
func (e *Evaluator) asks(pkt *packet.Packet) {
	if !pkt.Dst.IsMulticast() && (pkt.Link == packet.L3 || pkt.DstMAC>>40&1 == 0) {
		return
	}
	e.note(groupKey(pkt.Src, pkt.SrcPort), connection{state: group})
	if pkt.Dst.IsLinkLocalMulticast() && pkt.SrcPort == pkt.DstPort {
		e.note(groupKey(pkt.Dst, pkt.DstPort), connection{state: group})
	}
}

// answersGroup says whether a packet answers what a group has been asked.
func (e *Evaluator) answersGroup(pkt *packet.Packet) bool {
	return (pkt.Dst.IsMulticast() || onLink(pkt.Dst, pkt.Src)) &&
		e.connection(groupKey(pkt.Dst, pkt.DstPort)) != nil
}

// onLink says whether a source may be of the link of an address, by docs/reference/connections.md.
func onLink(local, source netip.Addr) bool {
	bits := 24
	switch {
	case local.Is6():
		bits = 64
		if source.IsLinkLocalUnicast() {
			return true
		}
	case local.IsPrivate(), local.IsLinkLocalUnicast():
		bits = 16
	}
	network, err := local.Prefix(bits)
	return err == nil && network.Contains(source)
}

// met notes that the other side began, where a packet over UDP passes that belongs to nothing
// known.
func (e *Evaluator) met(pkt *packet.Packet) {
	k := connectionKey{proto: pkt.Proto, local: pkt.Dst, remote: pkt.Src,
		localPort: pkt.DstPort, remotePort: pkt.SrcPort}
	if c := e.connection(k); c == nil || c.state == stranger {
		e.note(k, connection{state: stranger})
	}
}

// leaving returns what a TCP segment that leaves makes of a connection, nil if none is known; it is
// not ok if that is nothing.
func leaving(c *connection, pkt *packet.Packet, frame []byte) (next connection, ok bool) {
	if c != nil {
		next = *c
	}
	is, flags := next.state, pkt.Flags
	switch {
	case flags&packet.RST != 0:
		return connection{state: reset}, is == opening || is == open || is == closing
	case flags&(packet.SYN|packet.ACK) == packet.SYN:
		return connection{state: opening}, true
	case is == open && flags&packet.SYN != 0:
		return next, false
	case is == open:
		next.finOut = next.finOut || flags&packet.FIN != 0
		if next.finIn && next.finOut {
			return connection{state: closing}, true
		}
		return next, true
	case is == closing && flags&packet.SYN == 0:
		return next, true
	}
	at := frame[pkt.TransportOffset:]
	from := binary.BigEndian.Uint32(at[4:])
	if flags&packet.SYN != 0 {
		if is == answered && next.proof == from+1 {
			return next, true
		}
		return connection{state: answered, proof: from + 1}, true
	}
	data := pkt.NetworkOffset + pkt.Len - pkt.TransportOffset - int(at[12]>>4)*4
	if flags&packet.FIN != 0 {
		data++
	}
	if is == answered && data == 0 {
		return next, false
	}
	if is != answered && is != older {
		next = connection{state: older, proof: from}
	}
	next.finOut = next.finOut || flags&packet.FIN != 0
	if data > 0 {
		next.covers(from, from+uint32(data))
	}
	return next, true
}

// What has left of data is kept in blocks.
const (
	block      = 16384
	mostBlocks = 4095
)

func blocks(bytes uint32) uint32 { return (bytes + block - 1) / block }

// covers has acknowledgements of a segment that leaves prove a connection.
func (c *connection) covers(from, to uint32) {
	if before := int32(c.proof - from); c.state == older && before > 0 {
		c.sent += blocks(uint32(before))
		c.proof = from
	}
	if int32(to-c.proof) <= 0 {
		return
	}
	if c.sent = max(c.sent, blocks(to-c.proof)); c.sent > mostBlocks {
		c.proof, c.sent = from, blocks(to-from)
	}
}

// acknowledges says whether a number acknowledges what has left. Of an older connection that may be
// a probe, of the number before.
func (c *connection) acknowledges(ack uint32) bool {
	most := c.sent * block
	if c.state == older {
		most++
	}
	return ack-c.proof <= most
}

// established says whether a well-formed packet belongs to a connection that is known, and notes
// what the packet tells of it.
func (e *Evaluator) established(pkt *packet.Packet, frame []byte) bool {
	k := connectionKey{proto: pkt.Proto, local: pkt.Dst, remote: pkt.Src,
		localPort: pkt.DstPort, remotePort: pkt.SrcPort}
	switch {
	case pkt.Transport == packet.TCPTransport:
		c := e.connection(k)
		if c == nil {
			return false
		}
		was := *c
		ack := binary.BigEndian.Uint32(frame[pkt.TransportOffset+8:])
		known := c.arrives(pkt.Flags, ack, e.now())
		if known && was.state == answered && ack == was.proof { // that of the SYN-ACK
			e.cookies.proven[pkt.Src] = e.now().Add(provenFor)
		}
		return known
	case isUDP(pkt):
		c := e.connection(k)
		if c == nil || c.state == stranger {
			return e.answersGroup(pkt)
		}
		c.begin(twoWay, e.now())
		return true
	case pkt.Transport == packet.ICMPTransport && pkt.Type == 0,
		pkt.Transport == packet.ICMP6Transport && pkt.Type == 129:
		k.localPort = binary.BigEndian.Uint16(frame[pkt.TransportOffset+4:])
		return e.connection(k) != nil
	}
	if quote := quoted(pkt, frame); quote != nil {
		return e.quotesKnown(pkt, quote)
	}
	return false
}

// known says whether `established` holds for a well-formed packet.
func (e *Evaluator) known(pkt *packet.Packet, frame []byte) bool {
	if e.p.Leaves() {
		return e.answers(pkt)
	}
	return e.established(pkt, frame)
}

// answers says whether a packet that leaves answers the other side: by what it is, or since
// something of its connection has come.
func (e *Evaluator) answers(pkt *packet.Packet) bool {
	k := connectionKey{proto: pkt.Proto, local: pkt.Src, remote: pkt.Dst,
		localPort: pkt.SrcPort, remotePort: pkt.DstPort}
	switch {
	case pkt.Transport == packet.TCPTransport:
		if pkt.Flags&packet.RST != 0 {
			return true
		}
		if pkt.Flags&packet.SYN != 0 {
			return pkt.Flags&packet.ACK != 0
		}
		c := e.connection(k)
		return c != nil && (c.state == open || c.state == closing)
	case isUDP(pkt):
		c := e.connection(k)
		return c != nil && (c.state == twoWay || c.state == stranger)
	case pkt.Transport == packet.ICMPTransport:
		return pkt.Type == 0 || slices.Contains(errors4, pkt.Type)
	case pkt.Transport == packet.ICMP6Transport:
		return pkt.Type == 129 || slices.Contains(errors6, pkt.Type)
	}
	return false
}

// begin gives a connection another state, and its lease.
func (c *connection) begin(s state, now time.Time) {
	if c.state != s {
		c.state, c.ends = s, now.Add(leases[s])
	}
}

// arrives says whether a TCP segment belongs to a connection. It renews none.
func (c *connection) arrives(flags uint8, ack uint32, now time.Time) bool {
	rst := flags&packet.RST != 0
	handshake := flags & (packet.SYN | packet.ACK)
	if handshake == packet.SYN {
		return c.state == opening
	}
	switch c.state {
	case closing, reset:
		return true
	case opening:
		if handshake == packet.SYN|packet.ACK && !rst {
			c.begin(open, now)
		}
		return true
	case older:
		if rst {
			return true
		}
	}
	if c.state != open && (flags&packet.ACK == 0 || !c.acknowledges(ack)) {
		return false
	}
	if rst {
		return true
	}
	c.begin(open, now)
	if flags&packet.FIN != 0 {
		c.finIn = true
		if c.finOut {
			c.begin(closing, now)
		}
	}
	return true
}

// tracked says whether connections are kept of packets of this kind.
func tracked(pkt *packet.Packet) bool {
	return pkt.Transport == packet.TCPTransport || pkt.Transport == packet.ICMPTransport ||
		pkt.Transport == packet.ICMP6Transport ||
		isUDP(pkt)
}
