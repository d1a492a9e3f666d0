package oracle

import (
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Leaving reports whether the policy says something of what leaves.
func (e *Evaluator) Leaving() bool { return e.leaving != nil }

// Leave judges a frame that leaves by the interface. Packets that pass count as seen to leave,
// which makes connections known. Where the policy says nothing of it, it passes, and no slot has
// decided: the result is the zero value but for the action.
func (e *Evaluator) Leave(frame []byte) Result { return e.LeaveInto(new(Record), frame) }

// LeaveInto is Leave that records how, as EvalInto does.
func (e *Evaluator) LeaveInto(rec *Record, frame []byte) Result {
	if e.leaving == nil {
		e.left(frame)
		return Result{Action: action.Pass}
	}
	res := e.leaving.EvalInto(rec, frame)
	if res.Action == action.Pass {
		e.left(frame)
	}
	return res
}

// essentialOf are the built-in rules of a side of a policy.
func essentialOf(p *policy.Policy) [len(policy.Essential)]func(*packet.Packet) bool {
	all := essential
	if !p.Leaves() {
		return all
	}
	for i, name := range policy.Essential {
		switch name {
		case "dhcp": // a client asks
			all[i] = func(p *packet.Packet) bool {
				return p.Proto == packet.ProtoUDP && p.HasPorts() &&
					(p.Family == packet.IPv4 && p.SrcPort == 68 && p.DstPort == 67 ||
						p.Family == packet.IPv6 && p.SrcPort == 546 && p.DstPort == 547)
			}
		case "mld": // a listener reports, or goes
			all[i] = func(p *packet.Packet) bool {
				return p.Transport == packet.ICMP6Transport && p.TTL == 1 && !p.Fragment &&
					(p.Type == 131 || p.Type == 132 || p.Type == 143)
			}
		}
	}
	return all
}
