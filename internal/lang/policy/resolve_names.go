package policy

import (
	"fmt"
	"strings"

	"levee/internal/lang/syntax"
)

// protocols are the names of IP protocols (IANA protocol numbers).
var protocols = map[string]uint8{
	"tcp": 6, "udp": 17, "udplite": 136, "sctp": 132, "dccp": 33, "icmp": 1, "icmp6": 58,
	"igmp": 2, "gre": 47, "esp": 50, "ah": 51, "ospf": 89, "ipip": 4,
}

// portProtos are those of them that have ports.
var portProtos = map[string]uint8{"tcp": 6, "udp": 17, "udplite": 136, "sctp": 132, "dccp": 33}

func protoByName(s string) (Range, bool) {
	v, ok := protocols[s]
	return Range{uint64(v), uint64(v)}, ok
}

func protoHint(s string) string {
	switch strings.ToLower(s) {
	case "icmpv6", "ipv6-icmp":
		return didYouMean("icmp6")
	case "ipencap", "ip-in-ip":
		return didYouMean("ipip")
	case "vrrp":
		return "write its number: 112."
	case "pim":
		return "write its number: 103."
	case "any", "all", "ip":
		return "without this term any protocol matches; leave it out."
	}
	var names []string
	for n := range protocols {
		names = append(names, n)
	}
	if m := syntax.Nearest(s, sorted(names)); m != "" {
		return didYouMean(m)
	}
	return "write its number, such as 47 (see /etc/protocols)."
}

// wellKnown are services that people name instead of their ports.
var wellKnown = map[string]int{
	"ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "dns": 53, "bootps": 67, "dhcp": 67,
	"tftp": 69, "http": 80, "www": 80, "pop3": 110, "ntp": 123, "imap": 143, "snmp": 161, "bgp": 179, "ldap": 389,
	"https": 443, "smtps": 465, "syslog": 514, "submission": 587, "ldaps": 636, "imaps": 993, "pop3s": 995,
	"openvpn": 1194, "mysql": 3306, "rdp": 3389, "sip": 5060, "postgresql": 5432, "redis": 6379, "memcached": 11211, "wireguard": 51820,
}

func portHint(s string) string {
	if v, ok := wellKnown[strings.ToLower(s)]; ok {
		return fmt.Sprintf("write the number: %d.", v)
	}
	if s == "any" || s == "all" || s == "*" {
		return "without this term any port matches; leave it out."
	}
	if proto, port, ok := strings.Cut(s, "/"); ok {
		if _, has := portProtos[proto]; has {
			return fmt.Sprintf("write the protocol as a term: %s port %s.", proto, short(port))
		}
		if _, has := portProtos[port]; has {
			return fmt.Sprintf("write the protocol as a term: %s port %s.", port, short(proto))
		}
	}
	return "write a number, a range such as 1000-2000, a list in braces, or the name of a set."
}

func lenHint(s string) string {
	for _, unit := range []string{"b", "bytes", "k", "kb"} {
		if n, ok := strings.CutSuffix(strings.ToLower(s), unit); ok && allDigits(n) {
			return "a length is a number of bytes without a unit."
		}
	}
	return ""
}

// dscpByName knows the code points of RFC 2474, 2597, 3246, 5865 and 8622.
func dscpByName(s string) (Range, bool) {
	v := -1
	switch {
	case s == "ef":
		v = 46
	case s == "va":
		v = 44
	case s == "le":
		v = 1
	case len(s) == 3 && s[:2] == "cs" && s[2] >= '0' && s[2] <= '7':
		v = int(s[2]-'0') * 8
	case len(s) == 4 && s[:2] == "af" && s[2] >= '1' && s[2] <= '4' && s[3] >= '1' && s[3] <= '3':
		v = int(s[2]-'0')*8 + int(s[3]-'0')*2
	}
	return Range{uint64(v), uint64(v)}, v >= 0
}

func dscpHint(s string) string {
	if l := strings.ToLower(s); l != s {
		if _, ok := dscpByName(l); ok {
			return didYouMean(l)
		}
	}
	return "write 0 to 63, cs0 to cs7, af11 to af43, ef, va or le."
}

// etherByName knows EtherTypes (IANA ieee-802-numbers); pppoe and mpls are two each.
func etherByName(s string) (Range, bool) {
	r, ok := map[string]Range{
		"ipv4": {0x0800, 0x0800}, "arp": {0x0806, 0x0806}, "ipv6": {0x86dd, 0x86dd},
		"mpls": {0x8847, 0x8848}, "pppoe": {0x8863, 0x8864}, "lldp": {0x88cc, 0x88cc},
	}[s]
	return r, ok
}

func etherHint(s string) string {
	if strings.Count(s, ":") == 5 {
		return fmt.Sprintf("say which side: ether from %s, or ether to %s.", short(s), short(s))
	}
	switch strings.ToLower(s) {
	case "ip", "ip4":
		return didYouMean("ipv4")
	case "ip6":
		return didYouMean("ipv6")
	case "vlan", "802.1q", "8021q":
		return "use \"vlan\" with an id, or \"not untagged\"."
	}
	if m := syntax.Nearest(s, []string{"arp", "ipv4", "ipv6", "lldp", "pppoe", "mpls"}); m != "" {
		return didYouMean(m)
	}
	return "write a number such as 0x88cc, or arp, ipv4, ipv6, lldp, pppoe, mpls."
}

// etherCheck refuses what no packet has: VLAN tags are looked through.
func etherCheck(lo, hi uint64, s string) problem {
	if lo == hi && (lo == 0x8100 || lo == 0x88a8) {
		return problemf("use \"vlan\" with an id, or \"not untagged\".", "%s is a VLAN tag, which is looked through: \"ether\" is the type behind the tags", s)
	}
	return problem{}
}

// icmpTypes are names of ICMP types (RFC 792, RFC 1256; IANA icmp-parameters).
var icmpTypes = map[string]uint8{
	"echo-reply": 0, "destination-unreachable": 3, "redirect": 5, "echo-request": 8,
	"router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11, "parameter-problem": 12,
	"timestamp-request": 13, "timestamp-reply": 14,
}

// icmp6Types are names of ICMPv6 types (RFC 4443, 4861, 2710, 3810; IANA icmpv6-parameters).
var icmp6Types = map[string]uint8{
	"destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "parameter-problem": 4,
	"echo-request": 128, "echo-reply": 129,
	"mld-query": 130, "mld-report": 131, "mld-done": 132, "mld2-report": 143,
	"router-solicitation": 133, "router-advertisement": 134, "neighbor-solicitation": 135, "neighbor-advertisement": 136, "redirect": 137,
}

func icmpNames(six bool) map[string]uint8 {
	if six {
		return icmp6Types
	}
	return icmpTypes
}

func icmpHint(s string, six bool) string {
	names := icmpNames(six)
	switch strings.ToLower(s) {
	case "ping", "echo":
		return didYouMean("echo-request")
	case "pong":
		return didYouMean("echo-reply")
	case "unreachable", "unreach", "dest-unreachable", "destination-unreach":
		return didYouMean("destination-unreachable")
	case "fragmentation-needed", "frag-needed", "toobig", "mtu":
		if six {
			return didYouMean("packet-too-big")
		}
		return didYouMean("3/4")
	case "timxceed", "ttl-exceeded", "timeout":
		return didYouMean("time-exceeded")
	case "nd-neighbor-solicit":
		return didYouMean("neighbor-solicitation")
	case "nd-neighbor-advert":
		return didYouMean("neighbor-advertisement")
	case "nd-router-solicit":
		return didYouMean("router-solicitation")
	case "nd-router-advert":
		return didYouMean("router-advertisement")
	case "any", "all":
		return "without \"type\" any type matches; leave \"type " + s + "\" out."
	}
	if _, ok := icmpNames(!six)[s]; ok && six {
		return "that is a type of ICMP in IPv4: icmp type " + s + "."
	} else if ok {
		return "that is a type of ICMPv6: icmp6 type " + s + "."
	}
	var all []string
	for n := range names {
		all = append(all, n)
	}
	if m := syntax.Nearest(s, sorted(all)); m != "" {
		return didYouMean(m)
	}
	return "write a number, type/code such as 3/4, or a name such as echo-request."
}
