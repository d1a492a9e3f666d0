package ast

import (
	"strings"
)

// MaxTerms limits the terms of a rule or a packet.
const MaxTerms = 32

// IsQuoted tells whether an element was written in quotes: a name of the DNS.
func IsQuoted(element string) bool { return strings.HasPrefix(element, `"`) }

// PacketOnly are the words that exist in packets only.
var PacketOnly = map[string]struct {
	Kind TermKind
	What string
}{
	"type":    {PacketType, "an ICMP type"},
	"frag":    {Frag, "an offset in units of 8 bytes"},
	"options": {Options, ""},
}

// FieldWords are the words of packets that name a header field and take a number, or an Ethernet
// address.
const FieldWords = "tpid pcp dei inner-tpid inner-pcp inner-dei op sender-mac target-mac version " +
	"ihl ecn flow-label ip-len id reserved df mf frag-offset ip-proto ip-checksum udp-len seq " +
	"ack-number data-offset tcp-flags window urgent mss window-scale timestamp timestamp-echo " +
	"code icmp-id icmp-seq icmp-rest checksum"
