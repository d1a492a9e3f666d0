package stream

import (
	"bytes"
	"slices"
)

var dtls = Protocol{
	Name:   "dtls",
	What:   "the ClientHello of DTLS, as of TLS",
	Protos: []uint8{UDP},
	Ports:  []uint16{443, 5349, 5684},
	Fields: []string{"dtls.sni", "dtls.client_alpns", "dtls.ja3.hash", "dtls.ja3.string",
		"dtls.ja4"},
	New:   func(uint8) Parser { return &dtlsParser{} },
	Proof: "`levee help profiles` has it for DTLS",
}

// Numbers of RFC 6347, which those of RFC 9147 agree with before keys are there.
const (
	dtlsMajor      = 0xfe
	dtlsMostHellos = 3 // by their number: the first, that with a cookie, and one more
)

// dtlsParser joins the ClientHello of its fragments, which may be in any order, in several records
// and datagrams. A client says it once more, with the cookie that the server has given it.
type dtlsParser struct {
	hellos [dtlsMostHellos]pieces
	sizes  [dtlsMostHellos]int // of messages in bytes, 0: none has come
	whole  [dtlsMostHellos]bool
	read   *hello
}

func (p *dtlsParser) Held() int {
	bytes, pieces := p.held()
	return bytes + pieces*pieceBytes
}

func (p *dtlsParser) held() (bytes, pieces int) {
	for i := range p.hellos {
		bytes, pieces = bytes+p.hellos[i].held, pieces+len(p.hellos[i].all)
	}
	return bytes, pieces
}

func (p *dtlsParser) End() bool { return false }

func (p *dtlsParser) Record() map[string]any {
	out := p.read.record('d')
	if len(p.read.alpns) > 0 {
		out["client_alpns"] = p.read.alpns
	}
	return map[string]any{"dtls": out}
}

// Feed reads the records of a datagram. Records without a hello say nothing, once a part of one has
// come: a client goes on with its handshake before the flow is known to be proven. A hello behind
// them counts, as servers skip what they cannot read (RFC 6347, section 4.1.2.7).
func (p *dtlsParser) Feed(b []byte) Answer {
	for len(b) > 0 {
		c := &cutter{b: b}
		typ, major := c.one(), c.one()
		c.one() // the minor version
		epoch := c.two()
		c.take(6) // the record's number
		body := c.within(c.two())
		if c.bad || major != dtlsMajor {
			break // a record of DTLS 1.3 that is encrypted, or none
		}
		b = c.b
		for typ == recordHandshake && epoch == 0 && len(body.b) > 0 {
			if !p.message(body) {
				return Unknown
			}
		}
	}
	switch {
	case p.read != nil:
		return Done
	case p.Held() == 0:
		return Unknown
	}
	return More
}

// message reads a fragment of a message (RFC 6347, section 4.2.2), and says whether all that has
// come may be of one client.
func (p *dtlsParser) message(c *cutter) bool {
	typ, size := c.one(), c.three()
	number := c.two()
	at := c.three()
	data := c.take(c.three())
	switch {
	case c.bad || at+len(data) > size:
		return false
	case typ != clientHello:
		return true
	case number >= dtlsMostHellos || size == 0 || p.sizes[number] != 0 && p.sizes[number] != size:
		return false
	}
	p.sizes[number] = size
	if !p.hellos[number].add(at, data) {
		return false
	}
	if bytes, pieces := p.held(); bytes > Limit || pieces > mostPieces {
		return false
	}
	if p.whole[number] || p.hellos[number].held < size {
		return true
	}
	p.whole[number] = true
	h, ok := readHello(p.hellos[number].front(), true)
	if !ok || p.read != nil && !h.repeats(p.read) {
		return false
	}
	if p.read == nil {
		p.read = h
	}
	return true
}

// repeats reports whether a hello may be what the client of another one says when it is asked again
// (RFC 6347, section 4.2.1; RFC 8446, section 4.1.2). A server that keeps nothing of the first one
// would otherwise be told another name than whoever reads it.
func (h *hello) repeats(o *hello) bool {
	may := []uint16{21, 41, 42, extCookie, 51} // padding, tickets, early data, keys
	stays := func(all []uint16) []uint16 {
		return slices.DeleteFunc(slices.Clone(all), func(e uint16) bool {
			return slices.Contains(may, e)
		})
	}
	return h.version == o.version && bytes.Equal(h.random, o.random) && h.sni == o.sni &&
		slices.Equal(h.ciphers, o.ciphers) && slices.Equal(h.alpns, o.alpns) &&
		slices.Equal(h.versions, o.versions) && slices.Equal(h.algorithms, o.algorithms) &&
		slices.Equal(stays(h.extensions), stays(o.extensions))
}
