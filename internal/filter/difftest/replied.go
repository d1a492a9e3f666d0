package difftest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"levee/internal/packet"
	"levee/internal/packet/a2s"
	"levee/internal/packet/dns"
)

// replied says what is wrong with the answer of a cookie to a query; "" if nothing is.
func (r *comparison) replied(query, answer []byte) string {
	q, _ := r.transport(query)
	a, ok := r.transport(answer)
	datagram := query[q.TransportOffset:]
	datagram = datagram[8:binary.BigEndian.Uint16(datagram[4:])]
	want := func(got []byte) []byte {
		if number, ok := a2s.Number(got); ok && a2s.IsQuery(datagram) {
			return a2s.Answer(number)
		}
		return dns.Truncated(datagram)
	}
	switch {
	case !ok || a.Proto != packet.ProtoUDP || a.Src != q.Dst || a.Dst != q.Src ||
		a.SrcPort != q.DstPort || a.DstPort != q.SrcPort || a.SrcMAC != q.DstMAC ||
		a.DstMAC != q.SrcMAC:
		return "it does not go back"
	case a.Len > q.Len || len(answer) > len(query):
		return "it is longer than the query"
	}
	l := packet.Layout{IP: a.NetworkOffset, L4: a.TransportOffset, Six: a.Family == packet.IPv6,
		Proto: packet.ProtoUDP, Payload: a.TransportOffset + 8}
	answer = answer[:a.TransportOffset+8+a.UDPPayload]
	if got := answer[l.Payload:]; !bytes.Equal(got, want(got)) {
		return "it is another message"
	}
	sealed := slices.Clone(answer)
	if l.Seal(sealed, false, false); !bytes.Equal(sealed, answer) {
		return "a checksum is wrong"
	}
	return ""
}
