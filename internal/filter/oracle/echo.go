package oracle

import (
	"slices"
	"time"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/packet/a2s"
)

// echoes holds the clients that prove their flows by the value in a reply.
type echoes struct {
	proves []*policy.Prove
	given  map[connectionKey]*[echoLine]given
	asked  map[connectionKey][]answer  // numbers that cookies for A2S gave
	proven map[connectionKey]time.Time // when the flow was last noted
}

// given is a value that a flow was given in a kind of reply.
type given struct {
	text  string // of the statement
	value string
	at    time.Time // when the last reply left that has it
}

// echoLine is the number of values that a flow has at once. Flows that share a line of the program
// are not modelled.
const echoLine = 8

const (
	echoHolds   = 5 * time.Second
	echoLease   = 3*time.Minute + echoRenewed // without a packet
	echoRenewed = time.Second                 // once in so long at most
)

// newEchoes returns nil where no rule asks whose flows are proven.
func newEchoes(p *policy.Policy) *echoes {
	if !p.Asks(field.ProvenFlow) {
		return nil
	}
	e := &echoes{proves: p.Proves}
	e.forget()
	return e
}

func (e *echoes) forget() {
	e.given, e.asked = map[connectionKey]*[echoLine]given{}, map[connectionKey][]answer{}
	e.proven = map[connectionKey]time.Time{}
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

// at returns the value of a packet at an offset behind its UDP header, where it has that.
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
			if !payload(b.Bytes, b.Not, pkt, frame) {
				continue next
			}
		}
		if value, ok := at(pkt, frame, s.At, s.Bytes); ok {
			e.give(flow, given{s.Text, value, now})
		}
	}
}

// give notes a value where it was already, else in the last place that is empty, else in that of
// the oldest one.
func (e *echoes) give(flow connectionKey, g given) {
	line := e.given[flow]
	if line == nil {
		line = new([echoLine]given)
		e.given[flow] = line
	}
	at := 0
	for i, was := range line {
		if was.text == g.text && was.value == g.value {
			at = i
			break
		}
		if !was.at.After(line[at].at) {
			at = i
		}
	}
	line[at] = g
}

// wasGiven says whether a flow was given a value of late.
func (e *echoes) wasGiven(flow connectionKey, text, value string, now time.Time) bool {
	if line := e.given[flow]; line != nil {
		for _, was := range line {
			if was.text == text && was.value == value {
				return now.Sub(was.at) <= echoHolds
			}
		}
	}
	return false
}

// ask notes the number that a cookie gave the flow of a packet that it sent.
func (e *echoes) ask(pkt *packet.Packet, number uint32, now time.Time) {
	flow := connectionKey{packet.ProtoUDP, pkt.Src, pkt.Dst, pkt.SrcPort, pkt.DstPort}
	e.asked[flow] = append(e.asked[flow], answer{number, now})
}

// says tells whether a query has a number that a cookie gave its flow.
func (e *echoes) says(flow connectionKey, pkt *packet.Packet, frame []byte, now time.Time) bool {
	number, ok := a2s.Echo(frame[pkt.TransportOffset+8:][:pkt.UDPPayload])
	return ok && slices.ContainsFunc(e.asked[flow], func(a answer) bool {
		return a.number == number && now.Sub(a.at) <= numberHolds
	})
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
	if e.says(flow, pkt, frame, now) {
		e.proven[flow] = now
		return true
	}
	for _, s := range e.proves {
		if !isService(s, pkt.DstPort) {
			continue
		}
		for _, offset := range s.In {
			value, ok := at(pkt, frame, offset, s.Bytes)
			if ok && e.wasGiven(flow, s.Text, value, now) {
				e.proven[flow] = now
				return true
			}
		}
	}
	return false
}
