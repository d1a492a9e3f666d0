package defend

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// sent is how many packets an interface has sent, and how many of this machine's were refusals, by
// their own counters.
type sent struct {
	at      time.Time
	packets uint64
	refused refusals
}

// second is how many there were a second, since the last time, without refusals: who refuses
// something does not answer it. It is false the first time, and where the kernel does not say.
func (s *sent) second(now time.Time, packets uint64, no refusals, ok bool) (rate float64, is bool) {
	was := *s
	if *s = (sent{}); ok {
		*s = sent{now, packets, no}
	}
	if !ok || was.at.IsZero() || packets < was.packets || !now.After(was.at) {
		return 0, false
	}
	more := packets - was.packets
	if was.refused.told && no.told {
		more -= min(more, since(was.refused.all(), no.all()))
	}
	return float64(more) / now.Sub(was.at).Seconds(), true
}

// since is how much a counter has counted. One that began anew has counted nothing.
func since(was, is uint64) uint64 { return max(was, is) - was }

// refusals are what a network namespace says of packets that nobody wants.
type refusals struct {
	told         bool
	resets       uint64 // RSTs of TCP (tcpOutRsts of RFC 4022)
	broken       uint64 // segments with a wrong checksum, and the like (tcpInErrs): nothing is sent
	unreachables uint64 // of ICMP and ICMPv6 (icmpOutDestUnreachs of RFC 4293)
}

// all are the packets by which something was refused.
func (r refusals) all() uint64 { return r.resets + r.unreachables }

// refusalsOf are those of the texts of /proc/net/snmp and snmp6.
func refusalsOf(snmp, snmp6 string) refusals {
	resets, told := counter(snmp, "Tcp:", "OutRsts")
	broken, _ := counter(snmp, "Tcp:", "InErrs")
	four, _ := counter(snmp, "Icmp:", "OutDestUnreachs")
	six := uint64(0) // a machine without IPv6 has none
	for line := range strings.Lines(snmp6) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == "Icmp6OutDestUnreachs" {
			six, _ = number(words[1])
		}
	}
	return refusals{told, resets, broken, four + six}
}

// counter is a number of /proc/net/snmp, which has a line of names and one of numbers for each
// protocol.
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

// refused are segments that were refused since the last time.
type refused struct {
	at       time.Time
	segments uint64
}

// since is how many there were. It is false the first time, where that was more than a second ago,
// and where the kernel does not say.
func (r *refused) since(now time.Time, no refusals) (segments float64, is bool) {
	was := *r
	if *r = (refused{}); no.told {
		*r = refused{now, no.resets + no.broken}
	}
	if !no.told || was.at.IsZero() || now.Sub(was.at) > time.Second {
		return 0, false
	}
	return float64(since(was.segments, r.segments)), true
}
