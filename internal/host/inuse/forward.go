package inuse

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/host/nat"
)

// published returns the forwards of NAT rules for packets to this machine, without those that a
// listener's rule passes already, such as one for the proxy of containers.
func (m *Machine) published() (out []nat.Forward) {
	for _, f := range m.NAT.Forwards {
		own := func(a netip.Addr) bool { return f.To.Contains(a) }
		listens := func(l Listener) bool {
			return l.Proto == protocol(f.Proto) && l.Address.IsUnspecified() &&
				f.Ports == nat.Range{Low: l.Port, High: l.Port}
		}
		if m.Forwards && f.To.IsValid() && !slices.ContainsFunc(m.Addresses, own) ||
			slices.ContainsFunc(m.Listeners, listens) {
			continue
		}
		if all := f; f.Proto == 0 && f.Ports != (nat.Range{}) { // of any protocol that has ports
			all.Proto, f.Proto = protoTCP, protoUDP
			out = append(out, all)
		}
		out = append(out, f)
	}
	return out
}

func (m *Machine) translated(w *draft) {
	all := m.published()
	if len(all)+len(m.NAT.Unread) == 0 {
		return
	}
	w.part("What rules of NAT send elsewhere, as ports of containers.")
	for _, why := range m.NAT.Unread {
		w.line("# Not known: %s", shown(why))
	}
	said := ""
	for _, f := range all {
		if f.Rule != said {
			said = f.Rule
			w.line("# %s", shown(said))
		}
		w.line("%s", w.publish(f))
	}
}

// publish returns a rule for what is sent elsewhere.
func (w *draft) publish(f nat.Forward) string {
	rule, name := "pass", "forward"
	if f.Proto != 0 {
		rule += " " + protocol(f.Proto)
		name += "-" + strings.ReplaceAll(protocol(f.Proto), " ", "-")
	}
	if f.From.IsValid() {
		rule += " from " + bare(f.From)
	}
	switch {
	case f.To.IsValid():
		rule += " to " + bare(f.To)
	case f.Proto == 0:
		rule += " to any"
	}
	if f.Ports != (nat.Range{}) && (f.Proto == protoTCP || f.Proto == protoUDP) {
		ports := fmt.Sprint(f.Ports.Low)
		if f.Ports.High > f.Ports.Low {
			ports += fmt.Sprintf("-%d", f.Ports.High)
		}
		rule += " port " + ports
		name += "-" + ports
	}
	return fmt.Sprintf("%s as %q", rule, w.unique(name))
}

// protocol returns a protocol as rules name it.
func protocol(number uint8) string {
	switch number {
	case protoTCP:
		return "tcp"
	case protoUDP:
		return "udp"
	case protoICMP:
		return "icmp"
	case protoICMP6:
		return "icmp6"
	}
	return fmt.Sprintf("proto %d", number)
}

// bare returns a prefix, or an address where it is one.
func bare(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// shown returns a text of others in a comment: one line that is not too long.
func shown(text string) string {
	const most = 96
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
	if len(clean) > most {
		clean = clean[:most-3] + "..."
	}
	return clean
}

// unfiltered tells whether what comes by Dev is forwarded to others, and nothing behind a policy
// drops any of it.
func (m *Machine) unfiltered() bool {
	return m.Forwards && len(m.Behind) > 0 && !m.NAT.Filters && len(m.NAT.Unread) == 0
}

// spoofed drops what says to come from where it cannot. The kernel tells that where it forwards.
func (m *Machine) spoofed(w *draft) {
	switch {
	case !m.Forwards:
	case m.Uplinks > 1:
		w.part("No route leads back to these. It has %d uplinks, and answers may leave by\n# "+
			"another one: else ask for strict.", m.Uplinks)
		w.line(`drop not reverse-path loose as "spoofed"`)
	default:
		w.part("Who is behind another interface, or has an address of this machine, does not " +
			"come in here\n# (RFC 3704). Where answers leave by another way, ask for loose.")
		w.line(`drop not reverse-path strict as "spoofed"`)
	}
}

func (m *Machine) forwarding(w *draft) {
	if !m.Forwards {
		return
	}
	w.part("This machine forwards packets. What is not for itself is left to the filters behind.")
	if m.unfiltered() {
		w.line("# There are none: no rule of nftables or iptables drops what is forwarded. So all "+
			"of it\n# reaches what is behind %s. To let in answers alone, and what\n# you name, "+
			"write in the place of \"forwarded\" (it takes up to 1/128 of "+
			"the\n# memory, or what `connections max N` asks for):",
			shown(strings.Join(m.Behind, ", ")))
		w.line("#   pass established")
		w.line("#   pass tcp to { SERVERS } port { 80, 443 }")
	}
	if m.RoutesMulticast {
		w.line("# It routes multicast: groups that its own programs have joined are open too.")
	} else {
		w.line("# Multicast is not forwarded: it would be for programs here. IPv6 finds " +
			"neighbours and\n# routers by it, and a switch that snoops asks who listens.")
		w.line(`pass icmp6 type 133-137 ttl 255 as "neighbours"`)
		w.line(`pass icmp6 type mld-query ttl 1 as "listeners"`)
		w.line(`drop to { 224.0.0.0/4, ff00::/8 } as "multicast"`)
	}
	w.line("# self is its addresses and local routes: levee@%s keeps them as they are.", m.Dev)
	w.line(`pass not to self as "forwarded"`)
}

// Notes returns what whoever reads no draft should know of it.
func (m *Machine) Notes() (out []string) {
	for _, why := range m.NAT.Unread {
		out = append(out, why+"; ports that it sends elsewhere are not in the draft")
	}
	if all := m.published(); len(all) > 0 {
		out = append(out, fmt.Sprintf("rules of NAT send %d kinds of packets to this machine "+
			"elsewhere, such as published ports: the draft lets them in, see \"forward-\"",
			len(all)))
	}
	if m.unfiltered() {
		out = append(out, fmt.Sprintf("this machine forwards packets, and no rule of nftables or "+
			"iptables drops any: `pass not to self` lets all of them through to what is behind "+
			"%s; the draft has another form beside it", strings.Join(m.Behind, ", ")))
	}
	return out
}
