package ir

import (
	"fmt"
	"net/netip"
	"strings"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// asked is a kind of packet that a machine sends before it has an address of its own.
type asked struct {
	what, keep string
	traffic    Traffic
}

// before are the questions of a client of DHCP (RFC 2131 section 4.1), whether an address is taken
// (RFC 4862 section 5.4), and those for routers from the link (RFC 4861 section 4.1).
var before = func() []asked {
	addr := netip.MustParseAddr
	discovery := func(src, dst string, typ uint64) Traffic {
		return Traffic{Class: Class{Family: IPv6, Transport: ICMP}, Src: addr(src), Dst: addr(dst),
			Known: map[field.Field][]field.Range{field.ICMP6Type: one(typ << 8),
				field.TTL: one(255), field.Len: span(48, 128)}}
	}
	return []asked{
		{"DHCP", "`out pass udp from 0.0.0.0 from port 68 port 67`",
			Traffic{Class: Class{Family: IPv4, Transport: UDP}, Src: addr("0.0.0.0"),
				Dst: addr("255.255.255.255"), Known: map[field.Field][]field.Range{
					field.SrcPort: one(68), field.DstPort: one(67), field.TTL: span(16, 255),
					field.Len: span(200, 1500)}}},
		{"whether its address is taken", "`out pass icmp6 from ::`",
			discovery("::", "ff02::1:ff00:1", 135)},
		{"routers", "`out pass icmp6 from fe80::/10`", discovery("fe80::1", "ff02::2", 133)},
	}
}()

// asksCut warns of rules on the addresses of what leaves that drop what a machine asks before it
// has one of its own. Essential rules, which would pass it, come behind them.
func asksCut(prog *Program) (out []Finding) {
	if !prog.Policy.Essential {
		return nil
	}
	type cut struct{ what, keep []string }
	of := map[*policy.Rule]*cut{}
	for _, a := range before {
		d := prog.FirstDropped(&a.traffic)
		if d == nil {
			continue
		}
		r := ruleAt(prog.Policy, d.Slot)
		if r == nil || !onSources(r) {
			continue
		}
		if of[r] == nil {
			of[r] = &cut{}
		}
		of[r].what, of[r].keep = append(of[r].what, a.what), append(of[r].keep, a.keep)
	}
	for _, r := range prog.Policy.Rules {
		if c := of[r]; c != nil {
			out = append(out, Finding{r.Pos, fmt.Sprintf("this rule drops what a machine asks "+
				"before it has an address: %s", strings.Join(c.what, ", ")),
				"put " + strings.Join(c.keep, ", ") + " above it"})
		}
	}
	return out
}

// onSources says whether a rule asks for a family and for sources, and nothing else: one that asks
// more means what it drops.
func onSources(r *policy.Rule) bool {
	sources := false
	for i := range r.Match {
		switch r.Match[i].Field {
		case field.EtherType:
		case field.SrcAddr:
			sources = true
		default:
			return false
		}
	}
	return sources
}
