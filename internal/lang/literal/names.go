package literal

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Protocol returns the number of a protocol that has a name.
func Protocol(name string) (uint8, bool) {
	r, ok := field.Proto.Named(name)
	return uint8(r.Lo), ok
}

// portProtocol returns the number of one that has ports.
func portProtocol(name string) (uint8, bool) {
	v, ok := Protocol(name)
	return v, ok && policy.HasPorts(v)
}

// namesOf returns the names of values of a field.
func namesOf(f field.Field) (words []string) {
	for _, n := range f.Info().Names {
		words = append(words, n.Word)
	}
	return words
}

func protoHint(s string) string {
	switch strings.ToLower(s) {
	case "icmpv6", "ipv6-icmp":
		return diag.DidYouMean("icmp6")
	case "ipencap", "ip-in-ip":
		return diag.DidYouMean("ipip")
	case "vrrp":
		return "write its number: 112."
	case "pim":
		return "write its number: 103."
	case "any", "all", "ip":
		return "without this term any protocol matches; leave it out."
	}
	if m := diag.Nearest(s, slices.Sorted(slices.Values(namesOf(field.Proto)))); m != "" {
		return diag.DidYouMean(m)
	}
	return "write its number, such as 47 (see /etc/protocols)."
}

// WellKnown are services that people name instead of their ports.
var WellKnown = map[string]int{
	"ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "dns": 53, "bootps": 67,
	"dhcp": 67,
	"tftp": 69, "http": 80, "www": 80, "pop3": 110, "ntp": 123, "imap": 143, "snmp": 161,
	"bgp": 179, "ldap": 389,
	"https": 443, "smtps": 465, "syslog": 514, "submission": 587, "ldaps": 636, "imaps": 993,
	"pop3s":   995,
	"openvpn": 1194, "mysql": 3306, "rdp": 3389, "sip": 5060, "postgresql": 5432, "redis": 6379,
	"memcached": 11211, "wireguard": 51820,
}

// PortHint is for a text that is no port.
func PortHint(s string) string {
	if v, ok := WellKnown[strings.ToLower(s)]; ok {
		return fmt.Sprintf("write the number: %d.", v)
	}
	if s == "any" || s == "all" || s == "*" {
		return "without this term any port matches; leave it out."
	}
	if proto, port, ok := strings.Cut(s, "/"); ok {
		if _, has := portProtocol(proto); has {
			return fmt.Sprintf("write the protocol as a term: %s port %s.", proto, diag.Clip(port))
		}
		if _, has := portProtocol(port); has {
			return fmt.Sprintf("write the protocol as a term: %s port %s.", port, diag.Clip(proto))
		}
	}
	return "write a number, a range such as 1000-2000, a list in braces, or the name of a set."
}

func lenHint(s string) string {
	for _, unit := range []string{"b", "bytes", "k", "kb"} {
		if n, ok := strings.CutSuffix(strings.ToLower(s), unit); ok && AllDigits(n) {
			return "a length is a number of bytes without a unit."
		}
	}
	return ""
}

func dscpHint(s string) string {
	if l := strings.ToLower(s); l != s {
		if _, ok := field.DSCP.Named(l); ok {
			return diag.DidYouMean(l)
		}
	}
	return "write 0 to 63, cs0 to cs7, af11 to af43, ef, va or le."
}

func etherHint(s string) string {
	if strings.Count(s, ":") == 5 {
		return fmt.Sprintf("say which side: ether from %s, or ether to %s.", diag.Clip(s),
			diag.Clip(s))
	}
	switch strings.ToLower(s) {
	case "ip", "ip4":
		return diag.DidYouMean("ipv4")
	case "ip6":
		return diag.DidYouMean("ipv6")
	case "vlan", "802.1q", "8021q":
		return "use \"vlan\" with an id, or \"not untagged\"."
	}
	if m := diag.Nearest(s, namesOf(field.EtherType)); m != "" {
		return diag.DidYouMean(m)
	}
	return "write a number such as 0x88cc, or arp, ipv4, ipv6, lldp, pppoe, mpls."
}

// etherCheck refuses what no packet has: VLAN tags are looked through.
func etherCheck(lo, hi uint64, s string) diag.Problem {
	if lo == hi && (lo == 0x8100 || lo == 0x88a8) {
		return diag.Problemf("use \"vlan\" with an id, or \"not untagged\".",
			"%s is a VLAN tag, which is looked through: \"ether\" is the type behind the tags", s)
	}
	return diag.Problem{}
}

// vlanCheck refuses id 0, which is no VLAN.
func vlanCheck(lo, _ uint64, _ string) diag.Problem {
	if lo == 0 {
		return diag.Problemf(
			"ids are 1 to 4095; frames with a priority tag alone are \"untagged\".",
			"id 0 is no VLAN: a tag that has it is a priority tag, and counts as none")
	}
	return diag.Problem{}
}

func icmpHint(s string, f field.Field) string {
	six, other := f == field.ICMP6Type, field.ICMP6Type
	if six {
		other = field.ICMPType
	}
	switch strings.ToLower(s) {
	case "ping", "echo":
		return diag.DidYouMean("echo-request")
	case "pong":
		return diag.DidYouMean("echo-reply")
	case "unreachable", "unreach", "dest-unreachable", "destination-unreach":
		return diag.DidYouMean("destination-unreachable")
	case "fragmentation-needed", "frag-needed", "toobig", "mtu":
		if six {
			return diag.DidYouMean("packet-too-big")
		}
		return diag.DidYouMean("3/4")
	case "timxceed", "ttl-exceeded", "timeout":
		return diag.DidYouMean("time-exceeded")
	case "nd-neighbor-solicit":
		return diag.DidYouMean("neighbor-solicitation")
	case "nd-neighbor-advert":
		return diag.DidYouMean("neighbor-advertisement")
	case "nd-router-solicit":
		return diag.DidYouMean("router-solicitation")
	case "nd-router-advert":
		return diag.DidYouMean("router-advertisement")
	case "any", "all":
		return "without \"type\" any type matches; leave \"type " + s + "\" out."
	}
	if _, ok := other.Named(s); ok && six {
		return "that is a type of ICMP in IPv4: icmp type " + s + "."
	} else if ok {
		return "that is a type of ICMPv6: icmp6 type " + s + "."
	}
	if m := diag.Nearest(s, slices.Sorted(slices.Values(namesOf(f)))); m != "" {
		return diag.DidYouMean(m)
	}
	return "write a number, type/code such as 3/4, or a name such as echo-request."
}
