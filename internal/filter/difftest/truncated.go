package difftest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"levee/internal/packet"
	"levee/internal/packet/dns"
)

// truncated says what is wrong with the answer of a cookie to a DNS query; "" if nothing is.
func (r *comparison) truncated(query, answer []byte) string {
	q, _ := r.transport(query)
	a, ok := r.transport(answer)
	datagram := query[q.TransportOffset:]
	datagram = datagram[:binary.BigEndian.Uint16(datagram[4:])]
	switch {
	case !ok || a.Proto != packet.ProtoUDP || a.Src != q.Dst || a.Dst != q.Src ||
		a.SrcPort != q.DstPort || a.DstPort != q.SrcPort || a.SrcMAC != q.DstMAC ||
		a.DstMAC != q.SrcMAC:
		return "it does not go back"
	case !bytes.Equal(answer[a.TransportOffset+8:][:a.UDPPayload], dns.Truncated(datagram[8:])):
		return "it is another message"
	case a.Len > q.Len || len(answer) > len(query):
		return "it is longer than the query"
	}
	l := packet.Layout{IP: a.NetworkOffset, L4: a.TransportOffset, Six: a.Family == packet.IPv6,
		Proto: packet.ProtoUDP, Payload: a.TransportOffset + 8}
	answer = answer[:a.TransportOffset+8+a.UDPPayload]
	sealed := slices.Clone(answer)
	if l.Seal(sealed, false, false); !bytes.Equal(sealed, answer) {
		return "a checksum is wrong"
	}
	return ""
}
