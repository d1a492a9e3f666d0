package defend

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// sent is the number of packets that an interface has sent, by its own counter.
type sent struct {
	at      time.Time
	packets uint64
	refused refused
	moved   time.Time // the counter was another than before
	by      uint64    // so much more
}

// Some cards count once a second or so: a counter that has moved by many packets, and stands still
// now, says nothing for so long.
const (
	standsFor = 3 * time.Second / 2
	byMany    = 50
)

// stands says whether a counter says nothing new.
func (s *sent) stands(now time.Time, packets uint64) bool {
	return packets == s.packets && s.by >= byMany && now.Sub(s.moved) < standsFor
}

// second returns the number of packets a second since the last time, without refusals: who refuses
// something does not answer it. It is false the first time, and where the kernel does not say.
func (s *sent) second(now time.Time, packets uint64, no refusals, others func() (traffic, bool),
	ok bool) (rate float64, is bool) {
	if ok && s.stands(now, packets) {
		return 0, false
	}
	was := *s
	if *s = (sent{}); ok {
		*s = sent{now, packets, was.refused, was.moved, was.by}
		if packets > was.packets {
			s.moved, s.by = now, packets-was.packets
		}
	}
	_, refusing := s.refused.since(now, no, others)
	if !ok || was.at.IsZero() || packets < was.packets || !now.After(was.at) {
		return 0, false
	}
	more := packets - was.packets
	return float64(more-min(more, refusing)) / now.Sub(was.at).Seconds(), true
}

// unwanted holds what a network namespace had refused a second ago.
type unwanted struct {
	at time.Time
	no refusals
}

// second returns how many packets a second no socket of this machine has taken since the last time.
// A socket of a container may take what is forwarded, or nobody: it is not known here.
func (u *unwanted) second(now time.Time, no refusals) float64 {
	was := *u
	*u = unwanted{now, no}
	if !was.no.told || !no.told || !now.After(was.at) {
		return 0
	}
	n := since(was.no.unwanted, no.unwanted) + since(was.no.forwarded, no.forwarded)
	return float64(n) / now.Sub(was.at).Seconds()
}

// since returns the increase of a counter. One that began anew has counted nothing.
func since(was, is uint64) uint64 { return max(was, is) - was }

// refusals count what a network namespace refused, on all of its interfaces together.
type refusals struct {
	told         bool
	resets       uint64 // RSTs of TCP (tcpOutRsts of RFC 4022)
	broken       uint64 // segments with a wrong checksum, and the like (tcpInErrs): nothing is sent
	astray       astray // segments of open connections that these have no use for
	unreachables uint64 // of ICMP and ICMPv6 (icmpOutDestUnreachs of RFC 4293)
	connections  uint64 // that were opened here, or reset (tcpActiveOpens, tcpEstabResets)
	unwanted     uint64 // datagrams without a socket, or without room in it (NoPorts, InErrors)
	forwarded    uint64 // packets (ForwDatagrams)
}

// astray counts segments to open connections that the kernel has not taken: who forges the address
// and the ports of a client knows no numbers of its connection. They are answered at most by an
// acknowledgement (RFC 5961).
type astray struct {
	old    uint64 // with data that was there already, or is taken for it (DelayedACKLost)
	empty  uint64 // without data, and not answered (TCPACKSkipped…)
	beyond uint64 // beyond the window, with data or without; of newer kernels (BeyondWindow)
}

// since returns the smallest number that there can have been.
func (a astray) since(was astray) uint64 {
	return since(was.old, a.old) + max(since(was.empty, a.empty), since(was.beyond, a.beyond))
}

// traffic is the number of packets that interfaces have received and sent. Those of the loopback,
// which receives what it sends, are apart.
type traffic struct{ in, out, loop uint64 }

// refused holds what a network namespace had refused at the last look. If the other interfaces were
// looked at then, asked is true, and others is their traffic.
type refused struct {
	at     time.Time
	no     refusals
	others traffic
	asked  bool
}

// fewRefusals is the most refusals between two looks without a look at other interfaces, which
// takes longer the more there are.
const fewRefusals = 20

// since returns how many segments that came by an interface were refused since the last time, and
// how many packets it sent to refuse something: at least, as each of the others may be of one of
// the packets that other interfaces have received or sent. Where nobody knows that, it is none.
//
// The loopback has a packet and its refusal. Its segments are of connections that were opened here:
// of one there is a RST when it is refused, and up to two when it ends or is reset.
func (r *refused) since(now time.Time, no refusals, others func() (traffic, bool)) (segments,
	refusing uint64) {
	was := *r
	*r = refused{at: now, no: no}
	first := was.at.IsZero() || !was.no.told
	segments = since(was.no.resets+was.no.broken, no.resets+no.broken) +
		no.astray.since(was.no.astray)
	refusing = since(was.no.resets+was.no.unreachables, no.resets+no.unreachables)
	if !no.told || !first && max(segments, refusing) < fewRefusals {
		return 0, 0
	}
	r.others, r.asked = others()
	if first || !was.asked || !r.asked || r.others.in < was.others.in ||
		r.others.out < was.others.out || r.others.loop < was.others.loop { // an interface has gone
		return 0, 0
	}
	loop := (r.others.loop - was.others.loop) / 2
	local := min(loop, 2*since(was.no.connections, no.connections))
	in, out := r.others.in-was.others.in, r.others.out-was.others.out
	// What is forwarded came in by others, or left by them, and nobody here refused it.
	ours := in + out - min(in+out, since(was.no.forwarded, no.forwarded))
	return segments - min(segments, min(in, ours)+local),
		refusing - min(refusing, min(out, ours)+loop)
}

// elsewhere is the traffic of all interfaces of a network namespace without that of one. Bridges,
// bonds, VLANs and the like have packets that others have, too, and are not asked. It is false
// where there is no such interface.
func elsewhere(links []netlink.Link, dev string) (out traffic, ok bool) {
	masters := map[int]bool{}
	for _, l := range links {
		masters[l.Attrs().MasterIndex] = true
	}
	var own traffic
	for _, l := range links {
		s := l.Attrs().Statistics
		if s == nil {
			continue
		}
		watched := l.Attrs().Name == dev
		if watched {
			own, ok = traffic{in: s.RxPackets, out: s.TxPackets}, true
		}
		switch {
		case !watched && l.Attrs().Flags&net.FlagLoopback != 0:
			out.loop += s.RxPackets
		case !masters[l.Attrs().Index] && !isStacked(l):
			out.in, out.out = out.in+s.RxPackets, out.out+s.TxPackets
		}
	}
	out.in, out.out = out.in-min(out.in, own.in), out.out-min(out.out, own.out)
	return out, ok
}

// isStacked says whether the packets of an interface are those of its parent.
func isStacked(l netlink.Link) bool {
	switch l.Type() {
	case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap":
		return true
	}
	return false
}

// refusalsOf are those of the texts of /proc/net/snmp, snmp6 and netstat.
func refusalsOf(snmp, snmp6, netstat string) refusals {
	resets, told := counter(snmp, "Tcp:", "OutRsts")
	broken, _ := counter(snmp, "Tcp:", "InErrs")
	opened, said := counter(snmp, "Tcp:", "ActiveOpens")
	reset, _ := counter(snmp, "Tcp:", "EstabResets")
	four, _ := counter(snmp, "Icmp:", "OutDestUnreachs")
	closed, _ := counter(snmp, "Udp:", "NoPorts")
	full, _ := counter(snmp, "Udp:", "InErrors")
	forwarded, _ := counter(snmp, "Ip:", "ForwDatagrams")
	unreachables, unwanted := four, closed+full
	for line := range strings.Lines(snmp6) { // a machine without IPv6 has none
		words := strings.Fields(line)
		if len(words) != 2 {
			continue
		}
		n, _ := number(words[1])
		switch words[0] {
		case "Icmp6OutDestUnreachs":
			unreachables += n
		case "Udp6NoPorts", "Udp6InErrors":
			unwanted += n
		case "Ip6OutForwDatagrams":
			forwarded += n
		}
	}
	return refusals{told && said, resets, broken, astrayOf(netstat), unreachables, opened + reset,
		unwanted, forwarded}
}

// astrayOf reads the text of /proc/net/netstat. A SYN to an open connection counts as broken.
func astrayOf(netstat string) astray {
	of := func(name string) uint64 {
		n, _ := counter(netstat, "TcpExt:", name)
		return n
	}
	return astray{of("DelayedACKLost"), of("TCPACKSkippedSeq") + of("TCPACKSkippedPAWS") +
		since(of("TCPSYNChallenge"), of("TCPACKSkippedChallenge")), of("BeyondWindow")}
}

// counter is a number of /proc/net/snmp or netstat, which have a line of names and one of numbers
// for each protocol.
func counter(text, protocol, name string) (n uint64, ok bool) {
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] != protocol:
		case names == nil:
			names = words
		default:
			at := slices.Index(names, name)
			if at < 0 || at >= len(words) {
				return 0, false
			}
			return number(words[at])
		}
	}
	return 0, false
}

func number(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}
