package difftest

import (
	"net/netip"
	"time"

	"levee/internal/packet"
	"levee/internal/packet/a2s"
)

// asked is a number that a cookie for A2S gave to who sent a query.
type asked struct {
	client, server netip.AddrPort
	number         uint32
	at             time.Time
}

// gave notes the number of an answer, if it gives one.
func (r *comparison) gave(p *packet.Packet, answer []byte) {
	number, ok := a2s.Number(answer[p.TransportOffset+8:][:p.UDPPayload])
	if !ok {
		return
	}
	r.asked = append(r.asked, asked{netip.AddrPortFrom(p.Dst, p.DstPort),
		netip.AddrPortFrom(p.Src, p.SrcPort), number, r.clock.at})
	if len(r.asked) > mostGiven {
		r.asked = r.asked[1:]
	}
}

// queryA2S makes of frame i, mostly, an A2S query, with the number that its client was given or
// with another one, where a cookie of the policy answers these.
func (r *comparison) queryA2S(frames [][]byte, i int) {
	rand := r.clock.rand
	if !r.queriesA2S || rand.IntN(4) == 0 {
		return
	}
	var number []uint32
	of := byte(a2s.Info + rand.IntN(3))
	client, server := endpoint(rand), netip.AddrPortFrom(endpoint(rand).Addr(),
		27015+uint16(rand.IntN(2)))
	if of != a2s.Info || rand.IntN(2) == 0 {
		number = []uint32{rand.Uint32()}
	}
	if n := len(r.asked); n > 0 && rand.IntN(3) > 0 {
		a := r.asked[rand.IntN(n)]
		if age := r.clock.at.Sub(a.at); age <= numberHolds || age >= numberEnds {
			client, server, number = a.client, a.server, []uint32{a.number}
		}
		switch n := rand.IntN(8); {
		case n == 0 && len(number) > 0:
			number[0]++
		case n == 1:
			client = netip.AddrPortFrom(client.Addr(), client.Port()+1)
		}
	}
	if client.Addr().Is4() != server.Addr().Is4() {
		server = netip.AddrPortFrom(other(server.Addr()), server.Port())
	}
	payload := a2s.Query(of, number...)
	switch rand.IntN(16) {
	case 0:
		payload = payload[:rand.IntN(len(payload))]
	case 1:
		payload[4] = byte(0x53 + rand.IntN(6))
	case 2:
		payload = append(payload, 0)
	}
	frames[i] = r.frame(uncommon(rand, datagram(client, server, payload)))
}
