package stream

import (
	"encoding/binary"
	"slices"
	"strconv"

	"levee/internal/lang/field"
	"levee/internal/packet/dns"
)

var dnsRow = Protocol{
	Name:   "dns",
	What:   "the question of the first query of DNS",
	Protos: []uint8{TCP, UDP},
	Ports:  []uint16{53},
	Fields: []string{"dns.type", "dns.rrname", "dns.rrtype"},
	New:    func(proto uint8) Parser { return &dnsParser{stream: proto == TCP} },
	Proof:  quicProof,
}

// dnsParser reads a message, in front of which its length stands on a stream (RFC 1035, section
// 4.2.2).
type dnsParser struct {
	stream bool
	held   []byte
	read   dns.Message
}

// dnsLength are the bytes of the length.
const dnsLength = 2

func (p *dnsParser) Held() int { return len(p.held) }

func (p *dnsParser) End() bool { return false }

func (p *dnsParser) Feed(b []byte) Answer {
	if !p.stream {
		if p.read.Question {
			return Done // each query is one of its own; the first is told
		}
		return p.message(b)
	}
	p.held = append(p.held, b...)
	if len(p.held) < dnsLength {
		return More
	}
	n := int(binary.BigEndian.Uint16(p.held))
	if n > Limit-dnsLength {
		return Unknown
	}
	if len(p.held) < dnsLength+n {
		return More
	}
	return p.message(p.held[dnsLength : dnsLength+n])
}

func (p *dnsParser) message(b []byte) Answer {
	if p.read = dns.Read(b, false); p.read.Response || p.read.Malformed || !p.read.Question {
		p.read = dns.Message{}
		return Unknown
	}
	return Done
}

func (p *dnsParser) Record() map[string]any {
	return map[string]any{"dns": map[string]any{"type": "query",
		"rrname": p.read.Name.String(), "rrtype": typeOfDNS(p.read.Type)}}
}

// typeOfDNS returns a type in words, or as RFC 3597 writes one without.
func typeOfDNS(n uint16) string {
	names := field.DNSType.Info().Names
	at := slices.IndexFunc(names, func(of field.Name) bool { return of.Lo == uint64(n) })
	if at < 0 {
		return "TYPE" + strconv.Itoa(int(n))
	}
	return names[at].Word
}
