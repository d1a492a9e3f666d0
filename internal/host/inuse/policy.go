package inuse

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Policy returns a policy that keeps what was found, with the reason for each rule beside it.
func (m *Machine) Policy() string {
	w := &draft{labels: map[string]int{}}
	w.line("# A draft of `levee init`: it keeps what this machine was seen to use, and drops the " +
		"rest.")
	w.line("# Read it, take out what strangers need not reach, and put what remains on trial " +
		"again:")
	w.line("#   levee up FILE --dev %s --confirm 60s", m.Dev)
	w.line("")
	w.line("interface %s", m.Dev)
	m.sessions(w)
	m.spoofed(w)
	w.part("Errors and echoes. Losing the first makes connections hang.")
	w.line(`pass icmp type { 3, 11, 12, echo-request, echo-reply } as "icmp"`)
	w.line(`pass icmp6 type { 1, 2, 3, 4, echo-request, echo-reply } as "icmp6"`)
	m.services(w)
	m.translated(w)
	m.answers(w)
	m.forwarding(w)
	w.line("")
	w.line("default drop")
	m.tests(w)
	return w.String()
}

type draft struct {
	strings.Builder
	labels map[string]int // how often each was asked for
}

// unique returns a label, with a number behind it where another rule has it.
func (w *draft) unique(label string) string {
	if w.labels[label]++; w.labels[label] > 1 {
		return fmt.Sprintf("%s-again-%d", label, w.labels[label])
	}
	return label
}

func (w *draft) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// part begins a group of rules.
func (w *draft) part(format string, args ...any) {
	w.line("")
	w.line("# "+format, args...)
}

func (m *Machine) sessions(w *draft) {
	if len(m.SSH) == 0 {
		return
	}
	w.part("They had an SSH session when this was written. No rule and no list cuts them.")
	w.line("set sessions = { %s }", joined(m.SSH))
	w.line(`protect tcp from sessions port %s as "session"`, ports(m.SSHPorts))
}

func (m *Machine) services(w *draft) {
	w.part("What listens here, and is not on loopback alone.")
	if m.Unreadable {
		w.line("# Names of some processes cannot be read: that takes root with CAP_SYS_PTRACE.")
	}
	if len(m.Listeners)+len(m.Raw) == 0 {
		w.line("# Nothing.")
	}
	slices.SortStableFunc(m.Listeners, func(a, b Listener) int {
		return cmp.Or(strings.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
	for _, l := range m.Listeners {
		w.line("%s", w.service(l))
	}
	m.profiles(w)
	if len(m.Raw) > 0 {
		w.line("# Protocols without ports. Who sends them may be let in alone: from { PEERS }.")
	}
	for _, p := range m.Raw {
		ttl := ""
		if p.Number == protoVRRP {
			ttl = "ttl 255 " // RFC 9568: it comes from the link
		}
		w.line("pass proto %d %sas %q", p.Number, ttl,
			label(Listener{Proto: "proto", Port: uint16(p.Number), Owner: p.Owner}))
	}
	if len(m.Groups) > 0 {
		w.line("# Programs have joined the group %s. A switch that snoops asks who still wants it.",
			m.Groups[0])
		w.line(`pass igmp ttl 1 as "igmp"`)
	}
	for _, l := range m.Transient {
		w.line("# udp port %d%s looks like one that waits for an answer, and gets no rule of its "+
			"own.",
			l.Port, of(l))
	}
	if len(m.WireGuard) > 0 {
		w.line("# WireGuard: %s. Its port is one of those of the kernel above.",
			strings.Join(m.WireGuard, ", "))
	}
}

func (w *draft) service(l Listener) string {
	to := ""
	switch a := l.Address; {
	case a.IsMulticast(), a.IsUnspecified():
	default:
		to = fmt.Sprintf("to %s ", a)
	}
	return fmt.Sprintf("pass %s %sport %d as %q", l.Proto, to, l.Port, w.unique(label(l)))
}

// of returns the owner of a socket, in a sentence.
func of(l Listener) string {
	if l.Owner == "" {
		return ""
	}
	return " of " + label(l)
}

// label returns a label for a listener: the name of its process, as far as labels go.
func label(l Listener) string {
	clean := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, l.Owner)
	if clean == "" {
		clean = "listener"
	}
	return fmt.Sprintf("%.40s-%s-%d", clean, l.Proto, l.Port)
}

func (m *Machine) answers(w *draft) {
	w.part("Answers to what this machine asks. This draft knows no connections, so these are " +
		"held to who\n# may answer, and to the ports that questions leave from. `pass " +
		"established` in their place\n# lets in less. It takes up to 1/128 of the memory, or " +
		"what `connections max N` asks for.")
	high := fmt.Sprintf("%d-%d", m.Ephemeral[0], m.Ephemeral[1])
	w.line("# A TCP packet with ACK or RST opens no connection.")
	w.line(`pass tcp flags ack as "tcp-reply"`)
	w.line(`pass tcp flags rst as "tcp-reset"`)
	if len(m.Resolvers) > 0 {
		w.line("set resolvers = { %s }", joined(m.Resolvers))
		w.line(`pass udp from resolvers from port 53 as "dns-reply"`)
	}
	w.line(`pass udp from port 123 port { 123, %s } len <= 96 as "ntp-reply"`, high)
	if all := slices.Concat(m.Asks, m.Transient); len(all) > 0 && !m.Forwards {
		w.line("# More may be asked over UDP, as by %s: what answers passes, in fragments, too.",
			label(all[0]))
		w.line(`pass established as "answers"`)
		w.line(`fragments track udp as "fragments"`)
	}
	if m.Forwards {
		w.line("# Answers to those behind this machine, whose address it hides.")
		w.line(`pass udp port > 1023 as "udp-reply"`)
		w.line(`pass fragments as "fragment"`)
	}
	w.line("# DHCP is essential: its answers pass without a rule.")
	for _, f := range m.DHCP {
		w.line("# Lease: %s", f)
	}
}

func (m *Machine) tests(w *draft) {
	w.line("")
	w.line(`test "what is in use passes" {`)
	if m.Forwards {
		for _, a := range m.Addresses {
			w.line("    set self has %s", a)
		}
	}
	for _, a := range m.SSH {
		for _, p := range m.SSHPorts {
			w.line(`    packet tcp syn from %s port %d expect pass by "session"`, a, p)
		}
	}
	for _, f := range m.published() {
		if !f.From.IsValid() && !f.To.IsValid() && (f.Proto == protoTCP || f.Proto == protoUDP) {
			w.line("    packet %s from 203.0.113.7%s port %d expect pass", protocol(f.Proto),
				m.own(netip.IPv4Unspecified()), max(f.Ports.Low, 1))
		}
	}
	for _, l := range m.Listeners {
		if a := l.Address; a.IsUnspecified() || a.IsMulticast() {
			flags := ""
			if l.Proto == "tcp" {
				flags = "syn "
			}
			w.line("    packet %s %sfrom 203.0.113.7%s port %d expect pass", l.Proto, flags,
				m.own(netip.IPv4Unspecified()), l.Port)
		}
	}
	for _, a := range m.Resolvers {
		w.line("    packet udp from %s from port 53%s port %d expect pass", a, m.own(a),
			m.Ephemeral[0])
	}
	w.line("    packet tcp flags syn,ack from 203.0.113.80 from port 443%s port %d expect pass",
		m.own(netip.IPv4Unspecified()), m.Ephemeral[0])
	for _, server := range []string{"10.0.0.1", "169.254.169.254"} {
		w.line("    packet udp from %s from port 67 port 68 expect pass", server)
	}
	w.line("    packet arp expect pass by essential")
	for _, a := range m.Addresses {
		if a.Is6() {
			w.line("    packet icmp6 type neighbor-solicitation from fe80::1 to %s ttl 255 expect "+
				"pass", solicited(a))
		}
	}
	w.line("}")
}

// solicited returns the group at which neighbours ask for an address of IPv6 (RFC 4291, section
// 2.7.1).
func solicited(a netip.Addr) netip.Addr {
	host := a.As16()
	return netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: host[13], 14: host[14],
		15: host[15]})
}

// own returns where a packet of a test goes, on a machine that leaves alone what is not for itself:
// to its address of the family of the sender.
func (m *Machine) own(from netip.Addr) string {
	i := slices.IndexFunc(m.Addresses, func(a netip.Addr) bool { return a.Is4() == from.Is4() })
	if !m.Forwards || i < 0 {
		return ""
	}
	return " to " + m.Addresses[i].String()
}

func joined(as []netip.Addr) string {
	var out []string
	for _, a := range as {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}

// ports returns a port, or a list of some.
func ports(ps []uint16) string {
	if len(ps) == 1 {
		return fmt.Sprint(ps[0])
	}
	var out []string
	for _, p := range ps {
		out = append(out, fmt.Sprint(p))
	}
	return "{ " + strings.Join(out, ", ") + " }"
}
