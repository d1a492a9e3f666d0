package stream

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var tls = Protocol{
	Name:   "tls",
	What:   "the ClientHello of TLS: the name that is asked for, and how the client offers itself",
	Protos: []uint8{TCP},
	Ports:  []uint16{443},
	Fields: []string{"tls.sni", "tls.client_alpns", "tls.ja3.hash", "tls.ja3.string",
		"tls.ja4"},
	New: func(uint8) Parser { return &tlsParser{} },
}

// Numbers of RFC 8446.
const (
	recordHandshake = 22
	recordHeader    = 5
	recordMost      = 1<<14 + 256 // section 5.2
	clientHello     = 1
	helloHeader     = 4
	oldHeader       = 0x80 // of the first byte of a message of SSL 2, whose length is behind it

	extServerName = 0
	extGroups     = 10
	extPoints     = 11
	extAlgorithms = 13
	extALPN       = 16
	extVersions   = 43
	extCookie     = 44
)

// tlsParser joins the handshake from records, which may be as short as a byte.
type tlsParser struct {
	head  []byte // of the record that comes
	left  int    // bytes of the record that are to come
	hello []byte
	read  *hello
	begun bool // a byte has come
	old   bool // the hello has the form of SSL 2
}

func (p *tlsParser) Held() int { return len(p.head) + len(p.hello) }

func (p *tlsParser) End() bool { return false }

func (p *tlsParser) Record() map[string]any {
	out := p.read.record('t')
	if len(p.read.alpns) > 0 {
		out["client_alpns"] = p.read.alpns
	}
	return map[string]any{"tls": out}
}

func (p *tlsParser) Feed(b []byte) Answer {
	if !p.begun && len(b) > 0 {
		p.begun, p.old = true, b[0]&oldHeader != 0
	}
	if p.old {
		p.hello = append(p.hello, b...)
		return p.oldHello()
	}
	for len(b) > 0 {
		if p.left == 0 {
			p.head = append(p.head, b[0])
			b = b[1:]
			switch n := len(p.head); {
			case n == 1 && p.head[0] != recordHandshake, n == 2 && p.head[1] != 3:
				return Unknown
			case n < recordHeader:
				continue
			}
			// One without a byte breaks section 5.1, and OpenSSL 3.0 takes it.
			p.left = int(binary.BigEndian.Uint16(p.head[3:]))
			if p.head = p.head[:0]; p.left > recordMost {
				return Unknown
			}
			continue
		}
		n := min(p.left, len(b))
		for _, c := range b[:n] {
			p.hello = append(p.hello, c)
			if a := p.handshake(); a != More {
				return a
			}
		}
		p.left -= n
		b = b[n:]
	}
	return More
}

// handshake reads the ClientHello once it is whole.
func (p *tlsParser) handshake() Answer {
	n, a := helloBytes(p.hello)
	if a != Done {
		return a
	}
	var ok bool
	if p.read, ok = readHello(p.hello[helloHeader:n], false); !ok {
		return Unknown
	}
	return Done
}

// oldHello reads a ClientHello in the form of SSL 2 (RFC 5246, appendix E.2), once it is whole.
// OpenSSL 3.0 takes it from clients of TLS, too, where its security level is 0; they name nobody.
// Ciphers of SSL 2 alone have no number of two bytes, and are left out.
func (p *tlsParser) oldHello() Answer {
	const header, lengths = 2, 9 // bytes up to the message, and of it up to its lists
	b := p.hello
	if len(b) < header+1 {
		return More
	}
	n := header + (int(b[0])&^oldHeader<<8 | int(b[1]))
	switch {
	case b[header] != clientHello || n < header+lengths:
		return Unknown
	case len(b) < n:
		return More
	}
	c := &cutter{b: b[header+1 : n]}
	p.read = &hello{version: uint16(c.two())}
	ciphers, session, challenge := c.two(), c.two(), c.two()
	for all := c.within(ciphers); len(all.b) > 0; {
		if first, n := all.one(), uint16(all.two()); first == 0 && !all.bad {
			p.read.ciphers = append(p.read.ciphers, n)
		}
	}
	c.take(session)
	c.take(challenge)
	if major := p.read.version >> 8; c.bad || len(c.b) > 0 || ciphers == 0 || ciphers%3 != 0 ||
		major != 3 && p.read.version != 2 {
		return Unknown
	}
	return Done
}

// helloBytes returns the end of a ClientHello that begins a handshake, and whether it is there.
func helloBytes(b []byte) (n int, a Answer) {
	switch {
	case len(b) > 0 && b[0] != clientHello:
		return 0, Unknown
	case len(b) < helloHeader:
		return 0, More
	}
	n = helloHeader + (int(b[1])<<16 | int(b[2])<<8 | int(b[3]))
	switch {
	case n > helloHeader+Limit:
		return 0, Unknown
	case len(b) < n:
		return n, More
	}
	return n, Done
}

// hello is a ClientHello (RFC 8446, section 4.1.2), without the values that stand for none (GREASE,
// RFC 8701).
type hello struct {
	version    uint16 // that which the old field says
	random     []byte
	versions   []uint16
	ciphers    []uint16
	extensions []uint16
	groups     []uint16
	points     []byte
	algorithms []uint16
	alpns      []string
	sni        string
	named      bool // there is the extension of names
}

// cutter takes parts from the front of bytes. It goes on, with nothing, where they are too short.
type cutter struct {
	b   []byte
	bad bool
}

func (c *cutter) take(n int) []byte {
	if n > len(c.b) {
		c.bad, c.b = true, nil
		return make([]byte, min(n, 4))
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

func (c *cutter) one() int { return int(c.take(1)[0]) }

func (c *cutter) two() int { return int(binary.BigEndian.Uint16(c.take(2))) }

func (c *cutter) three() int { return c.one()<<16 | c.two() }

// within is a part that has its length in front of it.
func (c *cutter) within(n int) *cutter {
	out := c.take(n)
	if c.bad {
		return &cutter{}
	}
	return &cutter{b: out}
}

func (c *cutter) numbers() (out []uint16) {
	for len(c.b) > 1 {
		if n := uint16(c.two()); !greased(n) {
			out = append(out, n)
		}
	}
	return out
}

func greased(n uint16) bool { return n&0x0f0f == 0x0a0a && n>>8 == n&0xff }

// readHello reads what is behind the header of the message. That of DTLS has a cookie.
func readHello(b []byte, cookie bool) (*hello, bool) {
	c := &cutter{b: b}
	h := &hello{version: uint16(c.two())}
	const random = 32
	h.random = slices.Clone(c.take(random))
	c.take(c.one()) // the session
	if cookie {
		c.take(c.one())
	}
	h.ciphers = c.within(c.two()).numbers()
	c.take(c.one()) // compression
	if c.bad {
		return nil, false
	}
	if len(c.b) == 0 {
		return h, true
	}
	var said uint64 // types that are read, which are all below 63
	for all := c.within(c.two()); len(all.b) > 0; {
		typ := uint16(all.two())
		body := all.within(all.two())
		if all.bad {
			return nil, false
		}
		if greased(typ) {
			continue
		}
		h.extensions = append(h.extensions, typ)
		if bit := uint64(1) << min(typ, 63); said&bit == 0 { // a second one of a type says nothing
			said |= bit
			h.extension(typ, body)
		}
	}
	return h, !c.bad
}

// extension reads what one says. What is malformed says nothing.
func (h *hello) extension(typ uint16, c *cutter) {
	switch typ {
	case extServerName:
		h.named = true
		names := c.within(c.two())
		if names.one() == 0 && !names.bad {
			if name := names.take(names.two()); !names.bad {
				h.sni = string(name)
			}
		}
	case extGroups:
		h.groups = c.within(c.two()).numbers()
	case extPoints:
		h.points = slices.Clone(c.within(c.one()).b)
	case extAlgorithms:
		h.algorithms = c.within(c.two()).numbers()
	case extALPN:
		for all := c.within(c.two()); len(all.b) > 0; {
			if name := all.take(all.one()); !all.bad {
				h.alpns = append(h.alpns, string(name))
			}
		}
	case extVersions:
		h.versions = c.within(c.one()).numbers()
	}
}

// record has the members that EVE has of TLS and of QUIC; over is t for TCP, q for QUIC, and d for
// DTLS.
func (h *hello) record(over byte) map[string]any {
	text := h.ja3()
	out := map[string]any{"ja4": h.ja4(over),
		"ja3": map[string]any{"hash": md5Hex(text), "string": text}}
	if h.sni != "" {
		out["sni"] = h.sni
	}
	return out
}

// ja3 returns the text whose MD5 hash is JA3.
func (h *hello) ja3() string {
	lists := []string{strconv.Itoa(int(h.version))}
	for _, l := range [][]uint16{h.ciphers, h.extensions, h.groups} {
		lists = append(lists, joined(l, "%d", "-"))
	}
	var points []uint16
	for _, p := range h.points {
		points = append(points, uint16(p))
	}
	return strings.Join(append(lists, joined(points, "%d", "-")), ",")
}

func joined(all []uint16, form, between string) string {
	texts := make([]string, len(all))
	for i, n := range all {
		texts[i] = fmt.Sprintf(form, n)
	}
	return strings.Join(texts, between)
}

// ja4Versions are versions as JA4 has them.
var ja4Versions = map[uint16]string{0x0304: "13", 0x0303: "12", 0x0302: "11", 0x0301: "10",
	0x0300: "s3", 0x0002: "s2", 0xfeff: "d1", 0xfefd: "d2", 0xfefc: "d3"}

// ja4 is JA4 as FoxIO describes it ("JA4: TLS Client Fingerprint").
func (h *hello) ja4(over byte) string {
	number := h.version
	if len(h.versions) > 0 {
		number = slices.Max(h.versions)
		if over == 'd' { // numbers of DTLS count down
			number = slices.Min(h.versions)
		}
	}
	version, ok := ja4Versions[number]
	if !ok {
		version = "00"
	}
	name := byte('i')
	if h.named {
		name = 'd'
	}
	ciphers := slices.Sorted(slices.Values(h.ciphers))
	var rest []uint16
	for _, e := range h.extensions {
		if e != extServerName && e != extALPN {
			rest = append(rest, e)
		}
	}
	slices.Sort(rest)
	text := joined(rest, "%04x", ",")
	if len(h.algorithms) > 0 {
		text += "_" + joined(h.algorithms, "%04x", ",")
	}
	return fmt.Sprintf("%c%s%c%02d%02d%s_%s_%s", over, version, name, min(len(ciphers), 99),
		min(len(h.extensions), 99), h.ja4ALPN(), ja4Hash(joined(ciphers, "%04x", ",")),
		ja4Hash(text))
}

// ja4ALPN is the first and the last character of the first protocol, or of its hex digits.
func (h *hello) ja4ALPN() string {
	if len(h.alpns) == 0 || h.alpns[0] == "" {
		return "00"
	}
	of := h.alpns[0]
	if !alphanumeric(of[0]) || !alphanumeric(of[len(of)-1]) {
		of = hex.EncodeToString([]byte(of))
	}
	return string([]byte{of[0], of[len(of)-1]})
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

func ja4Hash(text string) string {
	const digits = 12
	if text == "" {
		return strings.Repeat("0", digits)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digits]
}
