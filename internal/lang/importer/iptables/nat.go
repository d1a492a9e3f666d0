package iptables

import (
	"strings"

	"levee/internal/lang/importer/match"
)

// natTo reads where DNAT, REDIRECT or NETMAP sends packets: 192.0.2.1-192.0.2.9:80-90,
// [2001:db8::1]:80, :80, 80, 192.0.2.1:2000-2010/1000 (by how far the port is behind 1000).
func (p *ipRule) natTo() {
	addr, port := p.to, ""
	switch p.target {
	case "REDIRECT":
		addr, port = "", p.to
	case "DNAT":
		if i := strings.LastIndexByte(p.to, ':'); i >= 0 && (!p.tab.six ||
			strings.HasPrefix(p.to, "[") && i > strings.IndexByte(p.to, ']')) {
			addr, port = p.to[:i], p.to[i+1:]
		}
	}
	var in match.AddressSpans
	if addr != "" {
		a, err := match.ParseSpan(strings.NewReplacer("[", "", "]", "").Replace(addr))
		if err != nil {
			return
		}
		in = match.AddressSpans{a}
	}
	var to *match.Ports
	if port != "" {
		port, base, counts := strings.Cut(port, "/")
		s, err := match.ParseSpansOf(match.ServicePorts(port), "-", 0xffff)
		if err != nil {
			return
		}
		to = &match.Ports{Span: s[0], Any: p.draws, Counts: counts}
		if b, err := match.ParseSpansOf(base, "-", 0xffff); counts {
			if err != nil {
				return
			}
			to.Base = b[0].Lo
		}
	}
	p.SentTo(p.target, in, p.target == "DNAT" && addr == "", to)
}
