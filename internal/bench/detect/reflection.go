package detect

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"levee/internal/packet"
)

// The shape of a reflection flood: numbers of hosts and packets, a port, and bytes.
const (
	reflectors    = 2000
	reflected     = 4000 // answers, of which some 8,000 packets are sent again and again
	reflectedPort = 22   // who spoofs the victim chooses it
	fullFragment  = 1480 // bytes behind the IP header, at an MTU of 1500
)

// reflection makes a capture of what a victim of DNS reflection gets: answers to the same question
// from open resolvers that exist, each with its distance and the length of its answer, most of them
// in fragments.
func reflection(seed uint64, to netip.Addr, reflectors int) ([]byte, error) {
	r := rand.New(rand.NewPCG(seed, 53))
	type resolver struct {
		addr  netip.Addr
		ttl   uint8
		size  int // of the text in its answer
		carry int // of its fragments
	}
	all := make([]resolver, reflectors)
	for i := range all {
		all[i] = resolver{hostOf(r), uint8(40 + r.IntN(85)), 400 + r.IntN(3400), fullFragment}
		if r.IntN(4) == 0 {
			all[i].carry -= 8 * (1 + r.IntN(20)) // behind a tunnel
		}
	}
	var out bytes.Buffer
	w, err := packet.NewWriter(&out)
	if err != nil {
		return nil, err
	}
	for range reflected {
		from := all[r.IntN(reflectors)]
		answer, err := amplified(uint16(r.Uint32()), from.size)
		if err != nil {
			return nil, err
		}
		whole, err := packet.Build(packet.Spec{From: from.addr, To: to, TTL: &from.ttl,
			Proto: new(uint8(packet.ProtoUDP)), FromPort: new(uint16(53)),
			ToPort: new(uint16(reflectedPort)), Payload: answer,
			Fields: []packet.FieldValue{{Word: "id", Value: uint64(r.Uint32() & 0xffff)}}})
		if err != nil {
			return nil, err
		}
		pieces, err := packet.Cut(whole, from.carry)
		if err != nil {
			return nil, err
		}
		for _, frame := range pieces {
			if err := w.Write(frame, len(frame), time.Unix(0, 0)); err != nil {
				return nil, err
			}
		}
	}
	return out.Bytes(), nil
}

// drawn makes a capture of datagrams that a function draws.
func drawn(seed uint64, draw func(*rand.Rand) packet.Spec) ([]byte, error) {
	const datagrams = 16_384
	r := rand.New(rand.NewPCG(seed, 17))
	var out bytes.Buffer
	w, err := packet.NewWriter(&out)
	if err != nil {
		return nil, err
	}
	for range datagrams {
		frame, err := packet.Build(draw(r))
		if err != nil {
			return nil, err
		}
		if err := w.Write(frame, len(frame), time.Unix(0, 0)); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// anything returns a datagram that has nothing in common with others but the victim: source, ports,
// length, hop count and content are drawn.
func anything(r *rand.Rand) packet.Spec {
	const longest = 512
	return packet.Spec{TTL: new(uint8(30 + r.IntN(225))), FromPort: between(r, 1, 65535),
		ToPort: between(r, 1, 65535), Payload: random(r, r.IntN(longest))}
}

// hostOf draws an address that forged packets come from, too.
func hostOf(r *rand.Rand) netip.Addr {
	for {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], r.Uint32())
		a := netip.AddrFrom4(b)
		for _, p := range internet {
			if p.Contains(a) {
				return a
			}
		}
	}
}

// amplified returns the answer to `ANY example.`, with so much text.
func amplified(id uint16, size int) ([]byte, error) {
	name := dnsmessage.MustNewName("example.")
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, Response: true,
		RecursionDesired: true, RecursionAvailable: true})
	b.EnableCompression()
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	err := b.Question(dnsmessage.Question{Name: name, Type: dnsmessage.TypeALL,
		Class: dnsmessage.ClassINET})
	if err != nil {
		return nil, err
	}
	if err := b.StartAnswers(); err != nil {
		return nil, err
	}
	for left := size; left > 0; left -= 255 {
		err := b.TXTResource(dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET,
			TTL: 3600}, dnsmessage.TXTResource{TXT: []string{strings.Repeat("x", min(left, 255))}})
		if err != nil {
			return nil, err
		}
	}
	return b.Finish()
}
