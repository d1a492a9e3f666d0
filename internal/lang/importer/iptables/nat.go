package iptables

import (
	"strings"
)

// natTo reads where DNAT or REDIRECT sends packets: 192.0.2.1:80-90, [2001:db8::1]:80, :80, 80.
func (p *ipRule) natTo() {
	addr, port := "", p.to
	if p.target == "DNAT" {
		addr, port = p.to, ""
		if i := strings.LastIndexByte(p.to, ':'); i >= 0 && (!p.tab.six ||
			strings.HasPrefix(p.to, "[") && i > strings.IndexByte(p.to, ']')) {
			addr, port = p.to[:i], p.to[i+1:]
		}
	}
	p.SentTo(p.target, strings.Trim(addr, "[]"), port)
}
