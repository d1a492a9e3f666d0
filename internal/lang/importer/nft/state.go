package nft

import (
	"encoding/json"
	"slices"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
	"levee/internal/lang/importer/state"
)

// state is a match on the state of the connection.
func (p *nftRule) state(r *importer.ChainRule, states []string, not bool) {
	upper := []string{}
	for _, s := range states {
		upper = append(upper, strings.ToUpper(s))
	}
	if not {
		upper = state.Negated(upper)
	}
	if r.States != nil {
		upper = slices.DeleteFunc(upper,
			func(s string) bool { return !slices.Contains(r.States, s) })
	}
	r.States = upper
}

// sent is `ct status dnat`, and `ct status ! dnat`: nat has given the connection another
// destination, or has not.
func (p *nftRule) sent(l json.RawMessage, op string, right json.RawMessage) []match.Match {
	key, inner := object(l)
	bit, _ := scalar(right)
	if parts := array(inner); key == "&" && op == "==" && len(parts) == 2 {
		if mask, _ := scalar(parts[1]); mask != bit {
			return nil
		}
		key, inner = object(parts[0])
		op = "in"
	}
	var c struct{ Key string }
	if key != "ct" || json.Unmarshal(inner, &c) != nil || c.Key != "status" || bit != "dnat" ||
		op != "in" && op != "!" || p.n.leaves {
		return nil
	}
	if op == "!" { // what belongs to no connection has no status
		p.state(p.Rule, []string{state.New, state.Established, state.Related}, false)
	}
	p.Remark(importer.Noticed, importer.SentText, "")
	return []match.Match{match.Match{}.With(match.Sent,
		match.Just(uint64(match.Int(op == "in"))))}
}

// direction is `ct direction`, of a rule about UDP or ICMP: what the other side begins is original.
// A connection of TCP is established whichever side has begun it.
func (p *nftRule) direction(l json.RawMessage, op string, right json.RawMessage) []match.Match {
	key, inner := object(l)
	var c struct{ Key string }
	s, _ := scalar(right)
	if key != "ct" || json.Unmarshal(inner, &c) != nil || c.Key != "direction" || op != "==" ||
		slices.ContainsFunc(p.Rule.Alts, func(m match.Match) bool {
			return m.Fields[match.Proto] == nil || !m.Fields[match.Proto].Within(match.NoTracked) ||
				len(m.Fields[match.Proto].And(match.Just(6))) > 0
		}) {
		return nil
	}
	switch s {
	case "original":
		return match.Settled([]match.Match{match.UdpOnly.With(match.Known, match.Just(0)),
			match.Match{}.With(match.ICMP, match.Requests),
			match.Match{}.With(match.ICMP6, state.Requests6)})
	case "reply":
		return match.Settled([]match.Match{match.Match{}.With(match.Known,
			match.Just(1)).With(match.Proto, match.Just(6).Not(255))})
	}
	return nil
}
