// Package sent counts what an interface sends, and how much of it refuses something: who refuses
// does not answer (docs/explanation/decisions/0193-refusals.md).
package sent

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/host/local"
)

// Counter is the number of packets that an interface has sent, by its own counter.
type Counter struct {
	At      time.Time // of the last look
	packets uint64
	refused Refused
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
func (s *Counter) stands(now time.Time, packets uint64) bool {
	return packets == s.packets && s.by >= byMany && now.Sub(s.moved) < standsFor
}

// Second returns the number of packets a second since the last time, without refusals: who refuses
// something does not answer it. It is false the first time, and where the kernel does not say.
func (s *Counter) Second(now time.Time, packets uint64, no Refusals, others func() (Traffic, bool),
	ok bool) (rate float64, is bool) {
	if ok && s.stands(now, packets) {
		return 0, false
	}
	was := *s
	if *s = (Counter{}); ok {
		*s = Counter{now, packets, was.refused, was.moved, was.by}
		if packets > was.packets {
			s.moved, s.by = now, packets-was.packets
		}
	}
	_, refusing := s.refused.Since(now, no, others)
	if !ok || was.At.IsZero() || packets < was.packets || !now.After(was.At) {
		return 0, false
	}
	more := packets - was.packets
	return float64(more-min(more, refusing)) / now.Sub(was.At).Seconds(), true
}

// Unwanted holds what a network namespace had refused a second ago.
type Unwanted struct {
	at time.Time
	no Refusals
}

// Second returns how many packets a second no socket of this machine has taken since the last time.
// A socket of a container may take what is forwarded, or nobody: it is not known here.
func (u *Unwanted) Second(now time.Time, no Refusals) float64 {
	was := *u
	*u = Unwanted{now, no}
	if !was.no.Told || !no.Told || !now.After(was.at) {
		return 0
	}
	n := since(was.no.Unwanted, no.Unwanted) + since(was.no.forwarded, no.forwarded)
	return float64(n) / now.Sub(was.at).Seconds()
}

// since returns the increase of a counter. One that began anew has counted nothing.
func since(was, is uint64) uint64 { return max(was, is) - was }

// Refusals count what a network namespace refused, on all of its interfaces together.
type Refusals struct {
	Told         bool
	Resets       uint64 // RSTs of TCP (tcpOutRsts of RFC 4022)
	broken       uint64 // segments with a wrong checksum, and the like (tcpInErrs): nothing is sent
	astray       astray // segments of open connections that these have no use for
	unreachables uint64 // of ICMP and ICMPv6 (icmpOutDestUnreachs of RFC 4293)
	connections  uint64 // that were opened here, or reset (tcpActiveOpens, tcpEstabResets)
	Unwanted     uint64 // datagrams without a socket, or without room in it (NoPorts, InErrors)
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

// Traffic is the number of packets that interfaces have received and sent. Those of the loopback,
// which receives what it sends, are apart.
type Traffic struct{ In, Out, Loop uint64 }

// Refused holds what a network namespace had refused at the last look. If the other interfaces were
// looked at then, asked is true, and others is their traffic.
type Refused struct {
	At     time.Time // of that look
	no     Refusals
	others Traffic
	asked  bool
}

// fewRefusals is the most refusals between two looks without a look at other interfaces, which
// takes longer the more there are.
const fewRefusals = 20

// Since returns how many segments that came by an interface were refused since the last time, and
// how many packets it sent to refuse something: at least, as each of the others may be of one of
// the packets that other interfaces have received or sent. Where nobody knows that, it is none.
//
// The loopback has a packet and its refusal. Its segments are of connections that were opened here:
// of one there is a RST when it is refused, and up to two when it ends or is reset.
func (r *Refused) Since(now time.Time, no Refusals, others func() (Traffic, bool)) (segments,
	refusing uint64) {
	was := *r
	*r = Refused{At: now, no: no}
	first := was.At.IsZero() || !was.no.Told
	segments = since(was.no.Resets+was.no.broken, no.Resets+no.broken) +
		no.astray.since(was.no.astray)
	refusing = since(was.no.Resets+was.no.unreachables, no.Resets+no.unreachables)
	if !no.Told || !first && max(segments, refusing) < fewRefusals {
		return 0, 0
	}
	r.others, r.asked = others()
	if first || !was.asked || !r.asked || r.others.In < was.others.In ||
		r.others.Out < was.others.Out || r.others.Loop < was.others.Loop { // an interface has gone
		return 0, 0
	}
	loop := (r.others.Loop - was.others.Loop) / 2
	local := min(loop, 2*since(was.no.connections, no.connections))
	in, out := r.others.In-was.others.In, r.others.Out-was.others.Out
	// What is forwarded came in by others, or left by them, and nobody here refused it.
	ours := in + out - min(in+out, since(was.no.forwarded, no.forwarded))
	return segments - min(segments, min(in, ours)+local),
		refusing - min(refusing, min(out, ours)+loop)
}

// Packets returns how many packets an interface of this network namespace has sent, by its own
// counter, and false where nobody says.
func Packets(dev string) (uint64, bool) {
	l, err := netlink.LinkByName(dev)
	if err != nil || l.Attrs().Statistics == nil {
		return 0, false
	}
	return l.Attrs().Statistics.TxPackets, true
}

// Here returns what this network namespace has refused, by /proc/net/snmp, snmp6 and netstat.
func Here() Refusals {
	four, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return Refusals{}
	}
	six, _ := os.ReadFile("/proc/thread-self/net/snmp6")
	more, _ := os.ReadFile("/proc/thread-self/net/netstat")
	return refusalsOf(string(four), string(six), string(more))
}

// Elsewhere is the traffic of all other interfaces of this network namespace. It is false where
// nobody says.
func Elsewhere(dev string) (Traffic, bool) {
	links, err := local.Links()
	if err != nil {
		return Traffic{}, false
	}
	return elsewhere(links, dev)
}

// elsewhere is the traffic of all interfaces of a network namespace without that of one. Bridges,
// bonds, VLANs and the like have packets that others have, too, and are not asked. It is false
// where there is no such interface.
func elsewhere(links []netlink.Link, dev string) (out Traffic, ok bool) {
	masters := map[int]bool{}
	for _, l := range links {
		masters[l.Attrs().MasterIndex] = true
	}
	var own Traffic
	for _, l := range links {
		s := l.Attrs().Statistics
		if s == nil {
			continue
		}
		watched := l.Attrs().Name == dev
		if watched {
			own, ok = Traffic{In: s.RxPackets, Out: s.TxPackets}, true
		}
		switch {
		case !watched && l.Attrs().Flags&net.FlagLoopback != 0:
			out.Loop += s.RxPackets
		case !masters[l.Attrs().Index] && !isStacked(l):
			out.In, out.Out = out.In+s.RxPackets, out.Out+s.TxPackets
		}
	}
	out.In, out.Out = out.In-min(out.In, own.In), out.Out-min(out.Out, own.Out)
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

// refusalsOf returns those of the texts of /proc/net/snmp, snmp6 and netstat.
func refusalsOf(snmp, snmp6, netstat string) Refusals {
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
	return Refusals{told && said, resets, broken, astrayOf(netstat), unreachables, opened + reset,
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
