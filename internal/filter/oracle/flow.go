package oracle

import (
	"encoding/binary"
	"net/netip"
	"time"

	"levee/internal/packet"
)

// connection is what is known of one. It ends by itself.
type connection struct {
	state         state
	finIn, finOut bool
	proof         uint32 // what a client has to acknowledge
	ends          time.Time
}

type state int

const (
	opening  state = iota + 1 // TCP: a SYN has left
	answered                  // TCP: a SYN-ACK has left
	open                      // TCP: the handshake is proven, or older than the policy
	closing                   // TCP: FIN both ways
	reset                     // TCP: a RST has left
	oneWay                    // UDP: nothing has come back
	twoWay                    // UDP
	echo                      // an ICMP echo request has left
)

// leases are how long each state lasts without a packet, by docs/language.md "Connections", and the
// second in which they are not renewed again.
var leases = map[state]time.Duration{
	opening: 241 * time.Second, answered: 241 * time.Second, open: 7441 * time.Second,
	closing: 241 * time.Second, reset: 241 * time.Second, oneWay: 121 * time.Second,
	twoWay: 301 * time.Second, echo: 61 * time.Second,
}

// connectionKey names a connection by the side that the policy is for and the other side. Of an
// echo both ports are its identifier.
type connectionKey struct {
	proto                 uint8
	local, remote         netip.Addr
	localPort, remotePort uint16
}

// renew gives a connection a new lease, at most once a second.
func (c *connection) renew(now time.Time) {
	if lease := leases[c.state]; lease-c.ends.Sub(now) >= time.Second {
		c.ends = now.Add(lease)
	}
}

// become gives a connection a state, and a new lease if it is not as it was.
func (c *connection) become(next connection, now time.Time) {
	next.ends = c.ends
	if next == *c {
		c.renew(now)
		return
	}
	next.ends = now.Add(leases[next.state])
	*c = next
}

func (e *Evaluator) connection(k connectionKey) *connection {
	c := e.flows[k]
	if c == nil || !c.ends.After(e.now()) {
		return nil
	}
	return c
}

// Leave tells the evaluator of a frame that leaves by the interface.
func (e *Evaluator) Leave(frame []byte) {
	var pkt packet.Packet
	e.link.Decode(frame, &pkt)
	if pkt.Malformed != packet.WellFormed {
		return
	}
	k := connectionKey{proto: pkt.Proto, local: pkt.Src, remote: pkt.Dst,
		localPort: pkt.SrcPort, remotePort: pkt.DstPort}
	now := e.now()
	next := connection{}
	switch {
	case pkt.Transport == packet.TCPTransport:
		var ok bool
		if next, ok = leaving(e.connection(k), pkt.Flags,
			binary.BigEndian.Uint32(frame[pkt.TransportOffset+4:])); !ok {
			return
		}
	case pkt.Proto == packet.ProtoUDP && pkt.Transport == packet.PortTransport:
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
	c := e.connection(k)
	if c == nil {
		c = &connection{}
		e.flows[k] = c
	}
	c.become(next, now)
}

// leaving is what a TCP segment that leaves makes of a connection, nil if none is known; it is not
// ok if that is nothing.
func leaving(c *connection, flags uint8, seq uint32) (next connection, ok bool) {
	is := state(0)
	if c != nil {
		is = c.state
	}
	switch {
	case flags&packet.RST != 0:
		return connection{state: reset}, c != nil && is != answered
	case flags&packet.SYN != 0 && flags&packet.ACK != 0:
		return connection{state: answered, proof: seq + 1}, is != open
	case flags&packet.SYN != 0:
		return connection{state: opening}, true
	case is == answered:
		return connection{}, false
	case is == closing:
		return connection{state: closing}, true
	}
	next.state = open
	if is == open {
		next.finIn, next.finOut = c.finIn, c.finOut
	}
	next.finOut = next.finOut || flags&packet.FIN != 0
	if is == open && next.finIn && next.finOut {
		return connection{state: closing}, true
	}
	return next, true
}

// established says whether a well-formed packet belongs to a connection that is known, and notes
// what the packet tells of it.
func (e *Evaluator) established(pkt *packet.Packet, frame []byte) bool {
	k := connectionKey{proto: pkt.Proto, local: pkt.Dst, remote: pkt.Src,
		localPort: pkt.DstPort, remotePort: pkt.SrcPort}
	switch {
	case pkt.Transport == packet.TCPTransport:
		if pkt.Flags&(packet.SYN|packet.ACK) == packet.SYN {
			return false
		}
		c := e.connection(k)
		if c == nil {
			return false
		}
		was := c.state
		known := c.arrives(pkt.Flags, binary.BigEndian.Uint32(frame[pkt.TransportOffset+8:]),
			e.now())
		if known && was == answered { // it knows the number of the SYN-ACK
			e.cookies.proven[pkt.Src] = e.now().Add(provenFor)
		}
		return known
	case pkt.Proto == packet.ProtoUDP && pkt.Transport == packet.PortTransport:
		c := e.connection(k)
		if c != nil {
			c.become(connection{state: twoWay, proof: c.proof}, e.now())
		}
		return c != nil
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

// arrives says whether a TCP segment other than one that opens a connection belongs to this one.
func (c *connection) arrives(flags uint8, ack uint32, now time.Time) bool {
	next := *c
	switch c.state {
	case opening:
		if flags&packet.RST != 0 {
			return true
		}
		if flags&packet.SYN == 0 || flags&packet.ACK == 0 {
			return false
		}
		next.state = open
		c.become(next, now)
		return true
	case answered:
		if flags&packet.ACK == 0 || flags&packet.SYN != 0 || ack != c.proof {
			return false
		}
		if flags&packet.RST != 0 {
			return true
		}
		next.state = open
	case closing, reset:
		return true
	}
	if flags&packet.FIN != 0 {
		next.finIn = true
		if next.finOut {
			next = connection{state: closing, proof: c.proof}
		}
	}
	c.become(next, now)
	return true
}

// tracked says whether connections are kept of packets of this kind.
func tracked(pkt *packet.Packet) bool {
	return pkt.Transport == packet.TCPTransport || pkt.Transport == packet.ICMPTransport ||
		pkt.Transport == packet.ICMP6Transport ||
		pkt.Transport == packet.PortTransport && pkt.Proto == packet.ProtoUDP
}
