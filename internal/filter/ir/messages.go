package ir

import (
	"slices"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// messages warns of rules that take a datagram of any port for a DNS message.
func messages(p *policy.Policy) (out []Finding) {
	for _, r := range p.Rules {
		asks, port := false, false
		for i := range r.Match {
			asks = asks || r.Match[i].Field.OfMessage()
			port = port || r.Match[i].Field.Info().Compare == field.ByPair
			port = port || slices.Contains([]field.Field{field.SrcPort, field.DstPort},
				r.Match[i].Field)
		}
		if asks && !port {
			out = append(out, Finding{Pos: r.Pos,
				Message: "this rule takes datagrams of any port for DNS messages",
				Hint:    "name the port: udp port 53"})
		}
	}
	return out
}
