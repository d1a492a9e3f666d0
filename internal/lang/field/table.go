package field

import "levee/internal/packet"

// All fields. The order means nothing.
const (
	None Field = iota

	SrcAddr    // IP source
	DstAddr    // IP destination
	SrcPort    // of the five protocols with ports, not on later fragments
	DstPort    //
	SrcService // protocol and source port together
	DstService // protocol and destination port together
	// source address, protocol and source port; absent where a port protocol has no port
	SrcEndpoint
	DstEndpoint  // destination address, protocol and destination port
	Proto        // protocol, or last next header
	EtherType    // after tags
	ICMPType     // type<<8|code; ICMP in IPv4
	ICMP6Type    // type<<8|code; ICMPv6 in IPv6
	TCPFlags     //
	TCPWindow    // as it stands in the header, not scaled
	Len          // bytes of the IP packet, or of what follows Ethernet and tags
	TTL          // time to live, or hop limit
	DSCP         //
	VLAN         // id of the outermost tag, priority tags aside
	InnerVLAN    // id of the second tag
	Tags         // number of tags, 0 to 2
	SrcMAC       // first octet highest
	DstMAC       //
	Fragment     // 1 for a fragment, first or not
	SrcSuffix    // the lower 64 bits of an IPv6 source address
	DstSuffix    // the same of the destination
	Flow         // 1 where the packet belongs to a connection that is known
	Payload      // bytes behind the UDP header, as far as the packet has them
	Contents     // the same bytes, which are searched
	Inner        // the packet within a tunnel, of which a match of its own is asked
	Proven       // 1 where the source has proven that it is there
	DNSName      // of the first question of a DNS message behind a UDP header
	DNSType      // of that question
	DNSOpcode    // of a DNS message's header
	DNSQuery     // 1 of a query
	DNSResponse  // 1 of a response
	DNSMalformed // 1 of a message that no resolver sends
	DNSSize      // that EDNS tells in a query
	Stream       // bytes that the client of a TCP connection has sent, up to this segment
	ProvenFlow   // 1 where whoever sends from this address and port has proven that he is there
	StrictPath   // 1 where the way back to the source is by the interface
	LoosePath    // 1 where there is a way back to the source
	Local        // 1 where this machine sends the packet, 0 where it only passes it on
	UID          // user of the socket that sends the packet
	GID          // group of who has made that socket
	User         // which of the users that the policy names; 0: none of them
	Group        // likewise of groups
	Service      // which of the units of systemd that it names the socket is of; 0: none of them
	Container    // likewise of containers

	NumFields
)

// All headers.
const (
	NoHeader   Header = iota
	InFrame           // Ethernet
	InTag             // a VLAN tag
	InInnerTag        // the second VLAN tag, of two
	InIP              // IPv4 or IPv6
	InIPv6            // IPv6
	InPorts           // TCP, UDP, UDP-Lite, SCTP or DCCP
	InTCP
	InICMP  // in IPv4
	InICMP6 // in IPv6
	InFlow  // TCP, UDP or ICMP, which connections are kept of
	InUDP
	InTunnel // VXLAN, Geneve or GTP-U in UDP, GRE, IPv4 or IPv6 in IP
	NumHeaders
)

// portProtos are the protocols with ports.
var portProtos = []uint8{
	packet.ProtoTCP, packet.ProtoUDP, packet.ProtoUDPLite, packet.ProtoSCTP, packet.ProtoDCCP,
}

var headers = [NumHeaders]Presence{
	InFrame:    {NotIP: true, IPv4: true, IPv6: true},
	InTag:      {NotIP: true, IPv4: true, IPv6: true, Tags: 1},
	InInnerTag: {NotIP: true, IPv4: true, IPv6: true, Tags: 2},
	InIP:       {IPv4: true, IPv6: true},
	InIPv6:     {IPv6: true},
	InPorts:    {IPv4: true, IPv6: true, Protos: portProtos},
	InTCP:      {IPv4: true, IPv6: true, Protos: []uint8{packet.ProtoTCP}},
	InICMP:     {IPv4: true, Protos: []uint8{packet.ProtoICMP}},
	InICMP6:    {IPv6: true, Protos: []uint8{packet.ProtoICMP6}},
	InFlow: {IPv4: true, IPv6: true, Protos: []uint8{packet.ProtoTCP, packet.ProtoUDP,
		packet.ProtoICMP, packet.ProtoICMP6}},
	InUDP: {IPv4: true, IPv6: true, Protos: []uint8{packet.ProtoUDP}},
	InTunnel: {IPv4: true, IPv6: true, Others: true, Protos: []uint8{packet.ProtoUDP,
		packet.ProtoGRE, packet.ProtoIPIP, packet.ProtoIPv6}},
}

// What packets lack that a rule asks for by several fields.
const (
	needsPorts = "only tcp, udp, udplite, sctp and dccp have ports."
	needsIP    = "only ipv4 and ipv6 packets have IP addresses."
	needsIPv6  = "a suffix is of IPv6 addresses."
	needsDNS   = "DNS is looked into over udp; over tcp it is a stream."
	needsTag   = "an untagged packet has no VLAN id, and only one with two tags has an inner one."
)

// vlans are ids of tags; one of id 0 is a priority tag, which counts as none.
var vlans = func() Values {
	r := []Range{{1, 4095}}
	return Values{r, r, r}
}()

// noVLAN is NO_VLAN of bpf/parse.h, and absent ABSENT of bpf/route.bpf.c.
const (
	noVLAN = 0xffff
	absent = 255
)

// Why policies of services cannot ask for something.
const (
	streams = "streams are searched where segments come in: write it in the policy of an " +
		"interface"
	proofs = "clients prove themselves to the policy of an interface"
	ways   = "the way back is looked up where packets come in: write it in the policy of an " +
		"interface"
	senders     = "a service is the sender: write it in the policy of an interface"
	headersOnly = "a filter of sockets looks at headers, and compares a payload: the policy of a " +
		"cgroup can ask for it (levee wrap unit)"
)

// absentID is NO_ID of bpf/sender.bpf.c: (uid_t)-1 is nobody's.
const absentID = 0xffffffff

// MaxNamed limits the users that a policy names, and its groups, services and containers.
const MaxNamed = 250

const (
	noWayBack   = "The way back to sources was taken as unknown."
	noSender    = "Who sends was taken as unknown."
	needsSender = "only ipv4 and ipv6 packets have senders."
)

var table = [NumFields]Info{
	SrcAddr: {
		Name: "source address", Header: InIP, Compare: ByPrefix, Key: "src_hi", Hot: true,
		Box: BoxSrc, Packet: "from", Needs: needsIP,
	},
	DstAddr: {
		Name: "destination address", Header: InIP, Compare: ByPrefix, Key: "dst_hi", Hot: true,
		Box: BoxDst, Packet: "to", Needs: needsIP,
	},
	SrcPort: {
		Name: "source port", Header: InPorts, Compare: ByRange, Key: "src_port", Hot: true,
		Max: 65535, Values: upTo(65535), Box: BoxNumber0, Packet: "from port", Needs: needsPorts,
	},
	DstPort: {
		Name: "destination port", Header: InPorts, Compare: ByRange, Key: "dst_port", Hot: true,
		Max: 65535, Values: upTo(65535), Box: BoxNumber1, Packet: "port", Needs: needsPorts,
	},
	SrcService: {
		Name: "source service", Header: InPorts, Compare: ByPair, Port: SrcPort, Needs: needsPorts,
	},
	DstService: {
		Name: "destination service", Header: InPorts, Compare: ByPair, Port: DstPort,
		Needs: needsPorts,
	},
	SrcEndpoint: {
		Name: "source endpoint", Header: InIP, Compare: ByPair, Address: SrcAddr, Port: SrcPort,
	},
	DstEndpoint: {
		Name: "destination endpoint", Header: InIP, Compare: ByPair, Address: DstAddr,
		Port: DstPort,
	},
	Proto: {
		Name: "IP protocol", Header: InIP, Compare: ByRange, Key: "proto", ByClass: true,
		Max: 255, Values: upTo(255), Box: BoxNumber1, Packet: "proto", Names: protocols,
	},
	EtherType: {
		Name: "EtherType", Header: InFrame, Compare: ByRange, Ethernet: true, Key: "ether_type",
		Max: 0xffff,
		Values: Values{
			// Neither IPv4 nor IPv6, nor a tag, which is looked through.
			Other: []Range{{0, 0x07ff}, {0x0801, 0x80ff}, {0x8101, 0x86dc}, {0x86de, 0x88a7},
				{0x88a9, 0xffff}},
			IPv4: []Range{{packet.EtherIPv4, packet.EtherIPv4}},
			IPv6: []Range{{packet.EtherIPv6, packet.EtherIPv6}},
		},
		Packet: "ether", Names: etherTypes,
	},
	ICMPType: {
		Name: "ICMP type", Header: InICMP, Compare: ByRange, Key: "icmp", Hot: true, Max: 0xffff,
		Values: upTo(0xffff), Box: BoxNumber1, Packet: "type", Names: icmpTypes,
		Needs: "\"icmp type\" is for ICMP in IPv4; for IPv6 write icmp6 type.",
	},
	ICMP6Type: {
		Name: "ICMPv6 type", Header: InICMP6, Compare: ByRange, Key: "icmp", Hot: true, Max: 0xffff,
		Values: upTo(0xffff), Box: BoxNumber1, Packet: "type", Names: icmp6Types,
		Needs: "\"icmp6 type\" is for ICMPv6 in IPv6; for IPv4 write icmp type.",
	},
	TCPFlags: {
		Name: "TCP flags", Header: InTCP, Compare: ByMask, Key: "tcp_flags", Max: 0xff,
		Values: upTo(0xff), Packet: "tcp-flags", Names: tcpFlags, Needs: "only tcp has flags.",
	},
	TCPWindow: {
		Name: "TCP window", Header: InTCP, Compare: ByRange, Key: "tcp_window", Max: 65535,
		Values: upTo(65535), Packet: "window", Needs: "only tcp has a window.",
	},
	Len: {
		Name: "length", Header: InFrame, Compare: ByRange, Key: "len", Max: 65535 + 40,
		Values: Values{
			Other: []Range{{0, 1<<32 - 1}}, IPv4: []Range{{20, 65535}},
			IPv6: []Range{{40, 65535 + 40}},
		},
		Packet: "len",
	},
	TTL: {
		Name: "TTL", Header: InIP, Compare: ByRange, Key: "ttl", Max: 255, Values: upTo(255),
		Packet: "ttl",
	},
	DSCP: {
		Name: "DSCP", Header: InIP, Compare: ByRange, Key: "dscp", Max: 63, Values: upTo(63),
		Packet: "dscp",
		Names:  codePoints,
	},
	VLAN: {
		Name: "VLAN id", Header: InTag, Compare: ByRange, Ethernet: true, Key: "vlan",
		Absent: noVLAN,
		Max:    4095, Values: vlans, Packet: "vlan", Needs: needsTag,
	},
	InnerVLAN: {
		Name: "inner VLAN id", Header: InInnerTag, Compare: ByRange, Ethernet: true,
		Key:    "inner_vlan",
		Absent: noVLAN,
		Max:    4095, Values: vlans, Packet: "inner-vlan", Needs: needsTag,
	},
	Tags: {
		Name: "number of tags", Header: InFrame, Compare: ByRange, Ethernet: true, Key: "tags",
		Max:    2,
		Values: upTo(2),
	},
	SrcMAC: {
		Name: "Ethernet source", Header: InFrame, Compare: ByRange, Ethernet: true, Key: "src_mac",
		Max: 1<<48 - 1, Values: upTo(1<<48 - 1), Packet: "ether from",
	},
	DstMAC: {
		Name: "Ethernet destination", Header: InFrame, Compare: ByRange, Ethernet: true,
		Key: "dst_mac",
		Max: 1<<48 - 1, Values: upTo(1<<48 - 1), Packet: "ether to",
	},
	Fragment: {
		Name: "fragmentation", Header: InIP, Compare: ByRange, ByClass: true, Max: 1,
		Values:    upTo(1),
		Packet:    "frag",
		NoService: "the kernel has put fragments together before a service sees them",
	},
	SrcSuffix: {
		Name: "IPv6 source suffix", Header: InIPv6, Compare: ByRange, Key: "src_lo",
		Max: 1<<64 - 1, Values: upTo(1<<64 - 1), Packet: "from", Needs: needsIPv6,
	},
	DstSuffix: {
		Name: "IPv6 destination suffix", Header: InIPv6, Compare: ByRange, Key: "dst_lo",
		Max: 1<<64 - 1, Values: upTo(1<<64 - 1), Packet: "to", Needs: needsIPv6,
	},
	Flow: {
		Name: "connection", Header: InFlow, Compare: ByRange, Key: "flow", Max: 1, Values: upTo(1),
		Remembered: true, Is: "the packet is of a known connection",
		IsNot:  "the packet is of no known connection",
		Untold: "Connections were taken as unknown.",
		Needs:  "connections are kept of tcp, udp and icmp.",
	},
	Payload: {
		Name: "payload", Header: InUDP, Compare: ByBytes,
		Needs: "the payload of udp is looked into.",
	},
	Contents: {
		Name: "payload to search", Header: InUDP, Compare: ByPattern,
		Needs: "the payload of udp is searched; of tcp ask for \"stream contains\".",
	},
	Stream: {
		Name: "stream to search", Header: InTCP, Compare: ByPattern, Remembered: true,
		Untold:    "Streams were taken as unknown.",
		Needs:     "streams of tcp are searched; of udp ask for \"payload contains\".",
		NoService: streams,
	},
	Inner: {
		Name: "inner packet", Header: InTunnel, Compare: ByInner,
		Needs:    "tunnels are looked into that are udp, gre, ipip or proto 41.",
		NoSocket: headersOnly,
	},
	ProvenFlow: {
		Name: "proof of its flow", Header: InUDP, Compare: ByRange, Key: "tcp_flags", Max: 1,
		Values: upTo(1), Remembered: true, Is: "its flow has proven itself",
		IsNot: "its flow has not proven itself", Untold: "No flow was taken as proven.",
		Needs:     "clients over udp prove their flows; of tcp ask for \"established\".",
		NoService: proofs,
	},
	StrictPath: {
		Name: "known way back by an interface", Header: InIP, Compare: ByRange,
		Key: "ether_type", Byte: 1, // which IP has no use for
		Absent: absent, Max: 1, Values: upTo(1), Remembered: true, Kernel: Arriving,
		Packet: "reverse-path", Is: "the way back to its source is by this interface",
		IsNot:  "the way back to its source is not by this interface",
		Untold: noWayBack, Needs: "only ipv4 and ipv6 packets have a way back.",
		NoService: ways,
	},
	LoosePath: {
		Name: "known way back", Header: InIP, Compare: ByRange, Key: "ether_type", Byte: 2,
		Absent: absent, Max: 1, Values: upTo(1), Remembered: true, Kernel: Arriving,
		Packet: "reverse-path", Is: "there is a way back to its source",
		IsNot: "there is no way back to its source", Untold: noWayBack,
		Needs:     "only ipv4 and ipv6 packets have a way back.",
		NoService: ways,
	},
	Local: {
		Name: "known origin", Header: InIP, Compare: ByRange, Key: "ether_type", Byte: 1,
		Absent: absent, Max: 1, Values: upTo(1), Remembered: true, Kernel: Leaving,
		Packet: "local", Names: origins, Is: "this machine sends it", IsNot: "it is forwarded",
		Untold: noSender, Needs: "only ipv4 and ipv6 packets are told apart.",
		NoService: senders,
	},
	UID: {
		Name: "uid", Header: InIP, Compare: ByRange, Key: "proof", Absent: absentID,
		Max: absentID - 1, Values: upTo(absentID - 1), Remembered: true, Kernel: Leaving,
		Packet: "uid", Untold: noSender, Needs: needsSender, NoService: senders,
	},
	GID: {
		Name: "gid", Header: InIP, Compare: ByRange, Key: "datagram", Absent: absentID,
		Max: absentID - 1, Values: upTo(absentID - 1), Remembered: true, Kernel: Leaving,
		Packet: "gid", Untold: noSender, Needs: needsSender, NoService: senders,
	},
	User:      namedSender("user", "frag", 1),
	Group:     namedSender("group", "frag", 2),
	Service:   namedSender("service", "ether_type", 2),
	Container: namedSender("container", "proven", 0),
	Proven: {
		Name: "proof of its source", Header: InIP, Compare: ByRange, Key: "proven", Max: 1,
		Values: upTo(1), Remembered: true, Is: "its source has proven itself",
		IsNot: "its source has not proven itself", Untold: "No client was taken as proven.",
		Needs:     "only ipv4 and ipv6 packets have sources that prove themselves.",
		NoService: proofs,
	},
	DNSName: {
		Name: "DNS name", Header: InUDP, Compare: ByName, Packet: "dns name", Needs: needsDNS,
		NoSocket: headersOnly,
	},
	DNSType: {
		Name: "DNS type", Header: InUDP, Compare: ByMessage, Max: 65535, Values: upTo(65535),
		Packet: "dns type", Names: dnsTypes, Needs: needsDNS,
		NoSocket: headersOnly,
	},
	DNSOpcode: {
		Name: "DNS opcode", Header: InUDP, Compare: ByMessage, Max: 15, Values: upTo(15),
		Packet: "dns opcode", Names: dnsOpcodes, Needs: needsDNS,
		NoSocket: headersOnly,
	},
	DNSQuery: {
		Name: "DNS header", Header: InUDP, Compare: ByMessage, Max: 1, Values: upTo(1),
		Needs:    needsDNS,
		NoSocket: headersOnly,
	},
	DNSResponse: {
		Name: "DNS flags", Header: InUDP, Compare: ByMessage, Max: 1, Values: upTo(1),
		Needs:    needsDNS,
		NoSocket: headersOnly,
	},
	DNSMalformed: {
		Name: "DNS message", Header: InUDP, Compare: ByMessage, Max: 1, Values: upTo(1),
		Needs:    needsDNS,
		NoSocket: headersOnly,
	},
	DNSSize: {
		Name: "EDNS size", Header: InUDP, Compare: ByMessage, Max: 65535, Values: upTo(65535),
		Packet: "dns edns-size", Needs: needsDNS,
		NoSocket: headersOnly,
	},
}

// namedSender returns the row of what a policy names of senders. Its values are places in its list
// of names, from 1 on. They lie in members of struct key that nothing asks of what leaves.
func namedSender(word, key string, byte int) Info {
	return Info{
		Name: word, Header: InIP, Compare: ByRange, Key: key, Byte: byte, Absent: absent,
		Max: MaxNamed, Values: upTo(MaxNamed), Remembered: true, Kernel: Leaving, Packet: word,
		Untold: noSender, Needs: needsSender, NoService: senders,
	}
}

// Phrases are the words of rules and packets, in the order in which they are printed. A word that
// names a header field of packets too (packet.FieldBits) may also be the name of a set; all others
// may not.
var Phrases = [...]Phrase{
	{Words: []string{"ipv4", "ipv6", "arp"}, Field: EtherType, Form: FormWord},
	{Word: "vlan", Field: VLAN, Form: FormNumber, What: "a VLAN id"},
	{Word: "inner-vlan", Field: InnerVLAN, Form: FormNumber, What: "a VLAN id"},
	{Word: "untagged", Field: Tags, Form: FormAlone, Range: Range{0, 0}},
	{Word: "ether", Field: EtherType, Form: FormNumber, What: "an EtherType"},
	{Word: "ether from", Field: SrcMAC, Form: FormMAC, What: "an Ethernet address"},
	{Word: "ether to", Field: DstMAC, Form: FormMAC, What: "an Ethernet address"},
	{Words: words(protocols), Field: Proto, Form: FormWord},
	{Word: "proto", Field: Proto, Form: FormNumber, What: "a protocol"},
	{Word: "icmp type", Field: ICMPType, Form: FormICMP, What: "an ICMP type"},
	{Word: "icmp6 type", Field: ICMP6Type, Form: FormICMP, What: "an ICMP type"},
	{Word: "type", Form: FormPacket, What: "an ICMP type"},
	{Word: "syn", Field: TCPFlags, Form: FormAlone, // as iptables' --syn
		Mask: packet.SYN | packet.ACK | packet.FIN | packet.RST, Value: packet.SYN},
	{Word: "flags", Field: TCPFlags, Form: FormFlags, What: "TCP flags"},
	{Word: "from", Field: SrcAddr, Form: FormAddress, What: "an address"},
	{Word: "from suffix", Field: SrcSuffix, Form: FormSuffix, What: "an address suffix"},
	{Word: "from port", Field: SrcPort, Form: FormNumber, What: "a port"},
	{Word: "to", Field: DstAddr, Form: FormAddress, What: "an address"},
	{Word: "to suffix", Field: DstSuffix, Form: FormSuffix, What: "an address suffix"},
	{Word: "port", Field: DstPort, Form: FormNumber, What: "a port"},
	{Word: "len", Field: Len, Form: FormNumber, What: "a length"},
	{Word: "ttl", Field: TTL, Form: FormNumber, What: "a TTL"},
	{Word: "dscp", Field: DSCP, Form: FormNumber, What: "a DSCP"},
	{Word: "window", Field: TCPWindow, Form: FormNumber, What: "a TCP window"},
	{Word: "payload at", Field: Payload, Form: FormBytes, What: "an offset"},
	{Word: "payload contains", Field: Contents, Form: FormPattern, What: "a text"},
	{Word: "stream contains", Field: Stream, Form: FormPattern, What: "a text"},
	{Word: "dns query", Field: DNSQuery, Form: FormAlone, Range: Range{1, 1}},
	{Word: "dns response", Field: DNSResponse, Form: FormAlone, Range: Range{1, 1}},
	{Word: "dns opcode", Field: DNSOpcode, Form: FormNumber, What: "an opcode"},
	{Word: "dns type", Field: DNSType, Form: FormNumber, What: "a type"},
	{Word: "dns name", Field: DNSName, Form: FormName, What: "a name in quotes"},
	{Word: "dns edns-size", Field: DNSSize, Form: FormNumber, What: "a size"},
	{Word: "dns malformed", Field: DNSMalformed, Form: FormAlone, Range: Range{1, 1}},
	{Word: "frag", Form: FormPacket, What: "an offset in units of 8 bytes"},
	{Word: "options", Form: FormPacket},
	{Form: FormPacket}, // header fields and bytes of a packet, by words of their own
	{Word: "fragments", Field: Fragment, Form: FormAlone, Range: Range{1, 1}},
	{Word: "established", Field: Flow, Form: FormAlone, Range: Range{1, 1}},
	{Word: "proven", Field: Proven, Form: FormAlone, Range: Range{1, 1}},
	{Word: "proven flow", Field: ProvenFlow, Form: FormAlone, Range: Range{1, 1}},
	{Word: "reverse-path strict", Field: StrictPath, Form: FormAlone, Range: Range{1, 1}},
	{Word: "reverse-path loose", Field: LoosePath, Form: FormAlone, Range: Range{1, 1}},
	{Words: words(origins), Field: Local, Form: FormWord},
	{Word: "uid", Field: UID, Form: FormNumber, What: "a uid"},
	{Word: "gid", Field: GID, Form: FormNumber, What: "a gid"},
	{Word: "user", Field: User, Form: FormSender, What: "the name of a user"},
	{Word: "group", Field: Group, Form: FormSender, What: "the name of a group"},
	{Word: "service", Field: Service, Form: FormSender, What: "a unit of systemd in quotes"},
	{Word: "container", Field: Container, Form: FormSender, What: "the name of a container"},
	{Word: "inner", Field: Inner, Form: FormInner, What: "a match in parentheses"},
	{Word: "malformed", Form: FormAlone}, // about the frame, not about a field
}
