package oracle

import (
	"time"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// echoes are what the evaluator knows of clients that prove their flows by what a reply said.
type echoes struct {
	proves []*policy.Prove
	given  map[givenKey]time.Time      // when a reply left that has it
	proven map[connectionKey]time.Time // when the flow was last noted
}

// givenKey is a value that a flow was given in a kind of reply.
type givenKey struct {
	flow  connectionKey
	text  string // of the statement
	value string
}

const (
	echoHolds   = 5 * time.Second
	echoLease   = 3*time.Minute + echoRenewed // without a packet
	echoRenewed = time.Second                 // once in so long at most
)

// newEchoes is nil where no rule asks whose flows are proven.
func newEchoes(p *policy.Policy) *echoes {
	if !p.Asks(field.ProvenFlow) {
		return nil
	}
	return &echoes{p.Proves, map[givenKey]time.Time{}, map[connectionKey]time.Time{}}
}

// isService says whether a proof is about a port.
func isService(s *policy.Prove, port uint16) bool {
	for _, r := range s.Ports {
		if r.Lo <= uint64(port) && uint64(port) <= r.Hi {
			return true
		}
	}
	return false
}

// at is the value of a packet at an offset behind its UDP header, where it has that.
func at(pkt *packet.Packet, frame []byte, offset, n int) (string, bool) {
	if pkt.UDPPayload < offset+n {
		return "", false
	}
	return string(frame[pkt.TransportOffset+8+offset:][:n]), true
}

// leave notes what a packet that leaves gives its client.
func (e *echoes) leave(pkt *packet.Packet, frame []byte, now time.Time) {
	if !isUDP(pkt) || pkt.Fragment {
		return
	}
	flow := connectionKey{packet.ProtoUDP, pkt.Src, pkt.Dst, pkt.SrcPort, pkt.DstPort}
next:
	for _, s := range e.proves {
		if !isService(s, pkt.SrcPort) {
			continue
		}
		for _, b := range s.Reply {
			if !payload(b, false, pkt, frame) {
				continue next
			}
		}
		if value, ok := at(pkt, frame, s.At, s.Bytes); ok {
			e.given[givenKey{flow, s.Text, value}] = now
		}
	}
}

// meet says whether the flow of a packet that comes in is proven, or is by this very packet.
func (e *echoes) meet(pkt *packet.Packet, frame []byte, now time.Time) bool {
	if e == nil || !isUDP(pkt) {
		return false
	}
	flow := connectionKey{packet.ProtoUDP, pkt.Dst, pkt.Src, pkt.DstPort, pkt.SrcPort}
	if noted, ok := e.proven[flow]; ok && now.Sub(noted) < echoLease {
		if now.Sub(noted) >= echoRenewed {
			e.proven[flow] = now
		}
		return true
	}
	for _, s := range e.proves {
		if !isService(s, pkt.DstPort) {
			continue
		}
		for _, offset := range s.In {
			value, ok := at(pkt, frame, offset, s.Bytes)
			if !ok {
				continue
			}
			given, ok := e.given[givenKey{flow, s.Text, value}]
			if ok && now.Sub(given) <= echoHolds {
				e.proven[flow] = now
				return true
			}
		}
	}
	return false
}
