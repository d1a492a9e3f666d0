package field

import (
	"fmt"

	"levee/internal/packet"
)

func one(word string, v uint64) Name          { return Name{word, Range{v, v}} }
func several(word string, lo, hi uint64) Name { return Name{word, Range{lo, hi}} }

// words returns the words of names, in their order.
func words(names []Name) (out []string) {
	for _, n := range names {
		out = append(out, n.Word)
	}
	return out
}

// protocols are the names of IP protocols (IANA protocol numbers).
var protocols = []Name{
	one("tcp", packet.ProtoTCP), one("udp", packet.ProtoUDP), one("udplite", packet.ProtoUDPLite),
	one("sctp", packet.ProtoSCTP), one("dccp", packet.ProtoDCCP),
	one("icmp", packet.ProtoICMP), one("icmp6", packet.ProtoICMP6), one("igmp", 2), one("gre", 47),
	one("esp", 50), one("ah", packet.ProtoAH), one("ospf", 89), one("ipip", 4),
}

// origins are the origins of packets that leave.
var origins = []Name{one("local", 1), one("forwarded", 0)}

// dnsTypes are types of DNS records and questions (IANA dns-parameters).
var dnsTypes = []Name{
	one("A", 1), one("NS", 2), one("CNAME", 5), one("SOA", 6), one("NULL", 10), one("PTR", 12),
	one("HINFO", 13), one("MX", 15), one("TXT", 16), one("AAAA", 28), one("SRV", 33),
	one("NAPTR", 35), one("DS", 43), one("RRSIG", 46), one("NSEC", 47), one("DNSKEY", 48),
	one("TLSA", 52), one("SVCB", 64), one("HTTPS", 65), one("IXFR", 251), one("AXFR", 252),
	one("ANY", 255), one("CAA", 257),
}

// dnsOpcodes are kinds of DNS messages (IANA dns-parameters).
var dnsOpcodes = []Name{
	one("query", 0), one("iquery", 1), one("status", 2), one("notify", 4), one("update", 5),
	one("dso", 6),
}

// etherTypes are names of EtherTypes (IANA ieee-802-numbers); pppoe and mpls are two each.
var etherTypes = []Name{
	one("arp", packet.EtherARP), one("ipv4", packet.EtherIPv4), one("ipv6", packet.EtherIPv6),
	one("lldp", 0x88cc), several("pppoe", 0x8863, 0x8864), several("mpls", 0x8847, 0x8848),
}

// codePoints are the names of RFC 2474, 2597, 3246, 5865 and 8622.
var codePoints = func() (names []Name) {
	for class := range uint64(8) {
		names = append(names, one(fmt.Sprintf("cs%d", class), 8*class))
	}
	for class := uint64(1); class <= 4; class++ {
		for drop := uint64(1); drop <= 3; drop++ {
			names = append(names, one(fmt.Sprintf("af%d%d", class, drop), 8*class+2*drop))
		}
	}
	return append(names, one("ef", 46), one("va", 44), one("le", 1))
}()

// icmpTypes are names of ICMP types, without the code (RFC 792, RFC 1256; IANA icmp-parameters).
var icmpTypes = []Name{
	one("echo-reply", 0), one("destination-unreachable", 3), one("redirect", 5),
	one("echo-request", 8),
	one("router-advertisement", 9), one("router-solicitation", 10), one("time-exceeded", 11),
	one("parameter-problem", 12), one("timestamp-request", 13), one("timestamp-reply", 14),
}

// icmp6Types are names of ICMPv6 types (RFC 4443, 4861, 2710, 3810; IANA icmpv6-parameters).
var icmp6Types = []Name{
	one("destination-unreachable", 1), one("packet-too-big", 2), one("time-exceeded", 3),
	one("parameter-problem", 4), one("echo-request", 128), one("echo-reply", 129),
	one("mld-query", 130), one("mld-report", 131), one("mld-done", 132), one("mld2-report", 143),
	one("router-solicitation", 133), one("router-advertisement", 134),
	one("neighbor-solicitation", 135), one("neighbor-advertisement", 136), one("redirect", 137),
}

// tcpFlags are the names of single flags (RFC 9293 section 3.1, RFC 3168).
var tcpFlags = []Name{
	one("fin", packet.FIN), one("syn", packet.SYN), one("rst", packet.RST), one("psh", packet.PSH),
	one("ack", packet.ACK), one("urg", packet.URG), one("ece", packet.ECE), one("cwr", packet.CWR),
}
