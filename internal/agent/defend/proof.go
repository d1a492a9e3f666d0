package defend

import (
	"fmt"
	"net/netip"
	"slices"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/signature"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/packet/a2s"
	"levee/internal/packet/dns"
)

// proof is by what the senders of a flood over UDP can prove that they are there (decision 0165).
type proof uint8

const (
	byNothing proof = iota
	byCookie        // DNS queries are answered with TC: who is there asks again over TCP
	byNumber        // A2S queries are answered with a number, which comes back
	byEcho          // replies say what has to come back
)

// isCookie says whether a cookie asks for it.
func (p proof) isCookie() bool { return p == byCookie || p == byNumber }

// proof returns the policy's way of proving clients that covers all ports of the flood. Nothing is
// asked for that the operator has not said his clients can do.
func (j *job) proof() proof {
	if !j.Alarm.Kind.Row().Proves || len(j.ports) == 0 {
		return byNothing
	}
	all := func(has func(port uint16) bool) bool {
		return !slices.ContainsFunc(j.ports, func(p uint16) bool { return !has(p) })
	}
	cookie := func(of action.Answered) bool {
		return all(func(port uint16) bool {
			return slices.ContainsFunc(j.base.Rules, func(r *policy.Rule) bool {
				return r.Cookie != nil && r.Cookie.Answers == of && goesTo(r, port)
			})
		})
	}
	switch {
	case cookie(action.DNSQueries):
		return byCookie
	case cookie(action.A2SQueries) && j.asksA2S(): // what else floods there no cookie takes
		return byNumber
	// Where no rule asks, nothing was noted: sessions that go on would be strangers.
	case j.base.Asks(field.ProvenFlow) && all(func(port uint16) bool {
		return slices.ContainsFunc(j.base.Proves, func(p *policy.Prove) bool {
			return within(p.Ports, port)
		})
	}):
		return byEcho
	}
	return byNothing
}

// goesTo tells whether a rule is about packets to a port, among others or alone.
func goesTo(r *policy.Rule, port uint16) bool {
	for i := range r.Match {
		if t := &r.Match[i]; t.Field == field.DstPort && within(t.Ranges, port) == t.Not {
			return false
		}
	}
	return true
}

func within(ranges []field.Range, port uint16) bool {
	return slices.ContainsFunc(ranges, func(r field.Range) bool {
		return r.Lo <= uint64(port) && uint64(port) <= r.Hi
	})
}

// ofUnproven is the part of what is too much that who is not proven may have: enough to be told
// what to send back, and too little to be a flood.
const ofUnproven = 0.5

// askProof has senders prove that they are there: with a cookie for queries, or with a limit on
// those who have not sent back what a reply said. Where it was tried, or nobody would hear it,
// fault says so.
func (j *job) askProof() (out incident.Rule, fault string) {
	of := func(p *packet.Packet) bool {
		return j.Alarm.Kind.Is(p) && slices.Contains(j.ports, p.DstPort)
	}
	text, lost := "", 0.0
	switch j.proof() {
	case byCookie, byNumber:
		out.Action = episode.Cookie
		if j.proof() == byCookie {
			out.Why = "who sends a query has to ask again over TCP, which proves that he is there"
			text = "cookie dns udp" + j.target()
			// a query of each, before it asks again
			lost = float64(strangers(j.good, j.peers.All(), of, sourceOf))
		} else {
			out.Why = "who sends a query has to send it again with a number, which proves that " +
				"he is there"
			text = "cookie a2s udp" + j.target()
			lost = float64(strangers(j.good, nil, of, flowOf))
		}
		if j.tried(episode.Cookie) {
			return out, "a cookie does not stop it: its senders are known, or have proven that " +
				"they are there"
		}
		if j.unheard != nil {
			return out, "nobody may hear the answers of a cookie"
		}
	case byEcho:
		out.Action = episode.Limit
		out.Why = "who has not sent back what a reply said has a small budget with all others"
		rate := max(2*j.Alarm.UsualAll, ofUnproven*j.tooMuch())
		text = "limit udp" + j.target() + " not proven flow" + rateText(rate)
		// the first packet of each flow, of those beyond the budget
		lost = max(0, 1-rate/max(1, j.Alarm.All)) * float64(strangers(j.good, nil, of, flowOf))
		if j.tried(episode.LimitUnproven) {
			return out, "a limit on who is not proven does not stop it: its senders have proven " +
				"that they are there"
		}
	}
	text, ok := valid(text)
	if !ok {
		return out, "no proof: the language has none for this"
	}
	out.Label, out.State = episode.Label(j.ID, j.Round, 0), incident.Waiting
	out.Rule = written(text, j.Of, out.Label)
	one := signature.Judged{Packets: j.good.Len(), Dropped: int(lost)}
	out.Coverage, out.Predicted, out.AtMost = 1, one.Collateral(), one.Highest()
	// A cookie has clients ask again; a limit drops what they send.
	if out.Action == episode.Limit && out.Predicted > j.byChance() {
		return out, fmt.Sprintf("no limit on who is not proven: it would drop %.2g %% of %d good "+
			"packets", 100*out.Predicted, j.good.Len())
	}
	return out, ""
}

// inFront has cookies, limits and greylists stand in front of the rule that passes the flood:
// behind it they would judge nothing. Drops have their places already.
func (j *job) inFront(rules []incident.Rule) {
	for i := range rules {
		if r := &rules[i]; r.Action != "drop" {
			r.Before = j.passedBy()
		}
	}
}

// firstOf is the share of a flood of which a rule is one that passes it.
const firstOf = 0.01

// passedBy returns the first rule of the policy that passes some of the flood, in front of which
// what is done about it has to stand; "" is the default.
func (j *job) passedBy() string {
	slots, by, all := j.base.Slots(), map[int]int{}, 0
	j.flood.Judge(j.base, nil, mostJudged, func(_ []byte, slot int, act action.Action) {
		all++
		if r := slots[slot].Reason; act == action.Pass && r != policy.ByProtect &&
			r != policy.ByEssential {
			by[slot]++
		}
	})
	for i, r := range j.base.Rules {
		if n := by[j.base.RuleSlot(i)]; n > 0 && float64(n) >= firstOf*float64(all) {
			return r.Text
		}
	}
	return ""
}

// asksA2S says whether the flood is one of A2S queries.
func (j *job) asksA2S() bool {
	counts, all := countKind(j.flood, j.Alarm.Kind, func(p *packet.Packet, b []byte) string {
		at := p.TransportOffset + 8
		if p.UDPPayload == 0 || p.Fragment ||
			!a2s.IsQuery(b[min(len(b), at):min(len(b), at+p.UDPPayload)]) {
			return ""
		}
		return "query"
	})
	return all > 0 && float64(counts["query"]) >= most*float64(all)
}

// asksNames says whether the flood is one of DNS queries, which can be told by their zones.
func (j *job) asksNames() bool {
	if !j.Alarm.Kind.Row().Proves || len(j.ports) == 0 {
		return false
	}
	counts, all := countKind(j.flood, j.Alarm.Kind, zoneOf)
	return all > 0 && float64(counts[""]) < (1-most)*float64(all)
}

// minOfZone is a rate that any zone may have, in queries a second.
const minOfZone = 200

// zoneLabels is the number of a name's last labels that make a zone, as limits count them.
const zoneLabels = 2

// keptName is the length of the longest name that samples keep as a whole, in bytes.
const keptName = 48

// zoneOf returns the zone that a DNS query asks for, by the last labels of its name; "" is none.
func zoneOf(p *packet.Packet, b []byte) string {
	if p.UDPPayload == 0 || p.Fragment {
		return ""
	}
	at := p.TransportOffset + 8
	m := dns.Read(b[at:min(len(b), at+p.UDPPayload)], false)
	if m.Response || !m.Question || len(m.Name) == 0 || len(m.Name) > keptName {
		return ""
	}
	return m.Name.Last(zoneLabels).String()
}

// flowOf returns the flow that may be proven: a client's address and port.
func flowOf(p *packet.Packet, _ []byte) netip.AddrPort {
	return netip.AddrPortFrom(p.Src, p.SrcPort)
}
