package packet

// EtherTypes that the decoder knows (IEEE 802 numbers).
const (
	EtherIPv4 = 0x0800
	EtherARP  = 0x0806
	EtherCTag = 0x8100 // 802.1Q
	EtherSTag = 0x88a8 // 802.1ad
	EtherIPv6 = 0x86dd
)

// IP protocol numbers (IANA "Assigned Internet Protocol Numbers").
const (
	ProtoHopByHop = 0
	ProtoICMP     = 1
	ProtoIPIP     = 4
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoDCCP     = 33
	ProtoIPv6     = 41 // IPv6 in IP
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoGRE      = 47
	ProtoAH       = 51
	ProtoICMP6    = 58
	ProtoDestOpts = 60
	ProtoSCTP     = 132
	ProtoMobility = 135
	ProtoUDPLite  = 136
	ProtoTesting  = 253 // RFC 3692
)

// TCP flags as they stand in the 14th byte of the header.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// HasPorts says whether proto is one of the five protocols with ports: TCP, UDP, UDP-Lite, SCTP
// and DCCP.
func HasPorts(proto uint8) bool {
	switch proto {
	case ProtoTCP, ProtoUDP, ProtoUDPLite, ProtoSCTP, ProtoDCCP:
		return true
	}
	return false
}
