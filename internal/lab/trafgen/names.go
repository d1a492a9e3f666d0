package trafgen

// stddef are the names of trafgen's stddef.h, with their values: numbers of the protocols'
// standards (IANA; include/uapi/linux), and fields that are drawn.
var stddef = map[string]string{
	"ETH_ALEN": "6", "ETH_HLEN": "14", "ETH_ZLEN": "60", "ETH_DATA_LEN": "1500",
	"ETH_FRAME_LEN": "1514", "ETH_SRC_RAND": "drnd(6)", "ETH_DST_RAND": "drnd(6)",
	"ETH_P_IP": "0x0800", "ETH_P_ARP": "0x0806", "ETH_P_RARP": "0x8035", "ETH_P_8021Q": "0x8100",
	"ETH_P_8021AD": "0x88a8", "ETH_P_QINQ1": "0x9100", "ETH_P_IPX": "0x8137",
	"ETH_P_IPV6": "0x86dd", "ETH_P_PAUSE": "0x8808", "ETH_P_SLOW": "0x8809",
	"ETH_P_PPP_DISC": "0x8863", "ETH_P_PPP_SES": "0x8864", "ETH_P_MPLS_UC": "0x8847",
	"ETH_P_MPLS_MC": "0x8848", "ETH_P_PAE": "0x888e", "ETH_P_AOE": "0x88a2",
	"ETH_P_802_EX1": "0x88b5", "ETH_P_1588": "0x88f7", "ETH_P_FCOE": "0x8906",
	"ETH_P_LOOP": "0x0060",

	"INADDR_BROADCAST": "0xffffffff", "INADDR_LOOPBACK": "0x7f000001",
	"INADDR_UNSPEC_GROUP": "0xe0000000", "INADDR_ALLHOSTS_GROUP": "0xe0000001",
	"INADDR_ALLRTRS_GROUP": "0xe0000002", "INADDR_MAX_LOCAL_GROUP": "0xe00000ff",

	"IPPROTO_ICMP": "1", "IPPROTO_IGMP": "2", "IPPROTO_IPIP": "4", "IPPROTO_TCP": "6",
	"IPPROTO_EGP": "8", "IPPROTO_PUP": "12", "IPPROTO_UDP": "17", "IPPROTO_IDP": "22",
	"IPPROTO_DCCP": "33", "IPPROTO_IPV6": "41", "IPPROTO_RSVP": "46", "IPPROTO_GRE": "47",
	"IPPROTO_ESP": "50", "IPPROTO_AH": "51", "IPPROTO_BEETPH": "94", "IPPROTO_PIM": "103",
	"IPPROTO_COMP": "108", "IPPROTO_SCTP": "132", "IPPROTO_UDPLITE": "136",

	"IP_ALEN": "4", "IP_VERSION": "4", "IP_TTL_DEFAULT": "64", "IP_HDR_OFF_DEFAULT": "14",
	"IP_SRC_RAND": "drnd(4)", "IP_DST_RAND": "drnd(4)", "IP_ID_RAND": "drnd(2)",
	"IP_CSUM_DEFAULT": "csumip(14, 33)",
	"IPV6_ALEN":       "16", "IPV6_VERSION": "6", "IPV6_HDR_OFF_DEFAULT": "14",
	"IPV6_SRC_RAND": "drnd(16)", "IPV6_DST_RAND": "drnd(16)",

	"ICMP_ECHOREPLY": "0", "ICMP_DEST_UNREACH": "3", "ICMP_SOURCE_QUENCH": "4",
	"ICMP_REDIRECT": "5", "ICMP_ECHO": "8", "ICMP_TIME_EXCEEDED": "11",
	"ICMP_PARAMETERPROB": "12", "ICMP_TIMESTAMP": "13", "ICMP_TIMESTAMPREPLY": "14",
	"ICMP_NET_UNREACH": "0", "ICMP_HOST_UNREACH": "1", "ICMP_PROT_UNREACH": "2",
	"ICMP_PORT_UNREACH": "3", "ICMP_FRAG_NEEDED": "4", "ICMP_EXC_TTL": "0",
	"ICMP_EXC_FRAGTIME": "1",

	"TCP_SEQ_RAND": "drnd(4)", "TCP_ACK_RAND": "drnd(4)", "TCP_SRC_RAND": "drnd(2)",
	"TCP_DST_RAND": "drnd(2)", "TCP_CSUM_DEFAULT": "csumtcp(14, 34)",
	"TCP_FLAG_CWR": "128", "TCP_FLAG_ECE": "64", "TCP_FLAG_URG": "32", "TCP_FLAG_ACK": "16",
	"TCP_FLAG_PSH": "8", "TCP_FLAG_RST": "4", "TCP_FLAG_SYN": "2", "TCP_FLAG_FIN": "1",
}

// headerNames are the functions that write headers.
var headerNames = map[string]string{"eth": "eth", "vlan": "vlan", "arp": "arp", "ip4": "ipv4",
	"ipv4": "ipv4", "ip6": "ipv6", "ipv6": "ipv6", "icmp4": "icmp4", "icmpv4": "icmp4",
	"icmp6": "icmp6", "icmpv6": "icmp6", "udp": "udp", "tcp": "tcp"}

// form is the way in which a field is written.
type form uint8

const (
	aNumber form = iota
	aMAC
	anAddress4
	anAddress6
	aFlag // no value, or 0 and 1
)

// row is a field of a header: the word of a template, and its form. Words that begin with = are
// put together by the header.
type row struct {
	word string
	form form
	most uint64 // of a number
}

const (
	bits3, bits4, bits6 = 7, 15, 63
	bits8, bits12       = 255, 4095
	bits13, bits16      = 8191, 65535
	bits20, bits32      = 1<<20 - 1, 1<<32 - 1
)

// rows are the fields by header and name.
var rows = map[string]map[string]row{
	"eth": {"da": {"ether to", aMAC, 0}, "daddr": {"ether to", aMAC, 0},
		"sa": {"ether from", aMAC, 0}, "saddr": {"ether from", aMAC, 0},
		"type": {"=type", aNumber, bits16}, "etype": {"=type", aNumber, bits16},
		"prot": {"=type", aNumber, bits16}, "proto": {"=type", aNumber, bits16}},
	"vlan": {"tpid": {"tpid", aNumber, bits16}, "prot": {"tpid", aNumber, bits16},
		"proto": {"tpid", aNumber, bits16}, "tci": {"=tci", aNumber, bits16},
		"dei": {"dei", aFlag, 1}, "cfi": {"dei", aFlag, 1}, "pcp": {"pcp", aNumber, bits3},
		"id": {"vlan", aNumber, bits12}, "1q": {"=1q", aFlag, 1}, "1ad": {"=1ad", aFlag, 1}},
	"arp": {"op": {"=op", aNumber, bits16}, "req": {"=request", aFlag, 1},
		"request": {"=request", aFlag, 1}, "reply": {"=reply", aFlag, 1},
		"smac": {"sender-mac", aMAC, 0}, "sha": {"sender-mac", aMAC, 0},
		"sip": {"from", anAddress4, 0}, "spa": {"from", anAddress4, 0},
		"tmac": {"target-mac", aMAC, 0}, "tha": {"target-mac", aMAC, 0},
		"tip": {"to", anAddress4, 0}, "tpa": {"to", anAddress4, 0}},
	"ipv4": {"ver": {"version", aNumber, bits4}, "version": {"version", aNumber, bits4},
		"ihl": {"ihl", aNumber, bits4}, "tos": {"=tos", aNumber, bits8},
		"dscp": {"dscp", aNumber, bits6}, "ecn": {"ecn", aNumber, 3},
		"len": {"ip-len", aNumber, bits16}, "length": {"ip-len", aNumber, bits16},
		"id": {"id", aNumber, bits16}, "flags": {"=flags", aNumber, bits3},
		"df": {"df", aFlag, 1}, "mf": {"mf", aFlag, 1}, "frag": {"frag-offset", aNumber, bits13},
		"ttl": {"ttl", aNumber, bits8}, "csum": {"ip-checksum", aNumber, bits16},
		"sa": {"from", anAddress4, 0}, "saddr": {"from", anAddress4, 0},
		"da": {"to", anAddress4, 0}, "daddr": {"to", anAddress4, 0},
		"prot": {"=proto", aNumber, bits8}, "proto": {"=proto", aNumber, bits8}},
	"ipv6": {"ver": {"version", aNumber, bits4}, "version": {"version", aNumber, bits4},
		"tc": {"=tos", aNumber, bits8}, "tclass": {"=tos", aNumber, bits8},
		"class": {"=tos", aNumber, bits8},
		"fl":    {"flow-label", aNumber, bits20}, "flow": {"flow-label", aNumber, bits20},
		"len": {"ip-len", aNumber, bits16}, "length": {"ip-len", aNumber, bits16},
		"nh": {"=proto", aNumber, bits8}, "nexthdr": {"=proto", aNumber, bits8},
		"hl": {"ttl", aNumber, bits8}, "hoplimit": {"ttl", aNumber, bits8},
		"ttl": {"ttl", aNumber, bits8},
		"sa":  {"from", anAddress6, 0}, "saddr": {"from", anAddress6, 0},
		"da": {"to", anAddress6, 0}, "daddr": {"to", anAddress6, 0}},
	"icmp4": {"type": {"=type", aNumber, bits8}, "code": {"code", aNumber, bits8},
		"echorequest": {"=echorequest", aFlag, 1}, "echoreply": {"=echoreply", aFlag, 1},
		"csum": {"checksum", aNumber, bits16}, "mtu": {"icmp-rest", aNumber, bits16},
		"seq": {"icmp-seq", aNumber, bits16}, "id": {"icmp-id", aNumber, bits16}},
	"icmp6": {"type": {"=type", aNumber, bits8}, "code": {"code", aNumber, bits8},
		"echorequest": {"=echorequest", aFlag, 1}, "echoreply": {"=echoreply", aFlag, 1},
		"csum": {"checksum", aNumber, bits16}},
	"udp": {"sp": {"from port", aNumber, bits16}, "sport": {"from port", aNumber, bits16},
		"dp": {"port", aNumber, bits16}, "dport": {"port", aNumber, bits16},
		"len": {"udp-len", aNumber, bits16}, "length": {"udp-len", aNumber, bits16},
		"csum": {"checksum", aNumber, bits16}},
	"tcp": {"sp": {"from port", aNumber, bits16}, "sport": {"from port", aNumber, bits16},
		"dp": {"port", aNumber, bits16}, "dport": {"port", aNumber, bits16},
		"seq": {"seq", aNumber, bits32}, "aseq": {"ack-number", aNumber, bits32},
		"ackseq": {"ack-number", aNumber, bits32}, "doff": {"data-offset", aNumber, bits4},
		"hlen": {"data-offset", aNumber, bits4}, "win": {"window", aNumber, bits16},
		"window": {"window", aNumber, bits16}, "csum": {"checksum", aNumber, bits16},
		"urgptr": {"urgent", aNumber, bits16},
		"cwr":    {"=cwr", aFlag, 1}, "ece": {"=ece", aFlag, 1}, "ecn": {"=ece", aFlag, 1},
		"urg": {"=urg", aFlag, 1}, "ack": {"=ack", aFlag, 1}, "psh": {"=psh", aFlag, 1},
		"rst": {"=rst", aFlag, 1}, "syn": {"=syn", aFlag, 1}, "fin": {"=fin", aFlag, 1}},
}
