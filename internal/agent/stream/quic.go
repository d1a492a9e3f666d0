package stream

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

var quic = Protocol{
	Name:   "quic",
	What:   "the ClientHello in the first packets of QUIC, as of TLS",
	Protos: []uint8{UDP},
	Ports:  []uint16{443},
	Fields: []string{"quic.version", "quic.sni", "quic.ja3.hash", "quic.ja3.string", "quic.ja4"},
	New:    func(uint8) Parser { return &quicParser{} },

	Initials: true,
	Proof:    quicProof,
}

// quicProof is the Proof of protocols that have no profile of their own.
const quicProof = "in `levee profile show quic`"

// Numbers of RFC 9000 and RFC 9001.
const (
	quicMostID     = 20   // section 17.2: bytes of a connection ID
	quicLeastBytes = 1200 // section 14.1: of a datagram with an Initial of a client
	quicSample     = 16   // RFC 9001, section 5.4.2
	quicKeyBytes   = 16   // AEAD_AES_128_GCM
	quicIVBytes    = 12
	quicTagBytes   = 16

	quicPadding     = 0x00
	quicPing        = 0x01
	quicACK         = 0x02
	quicACKWithECN  = 0x03
	quicCrypto      = 0x06
	quicConnClose   = 0x1c
	quicV2          = 0x6b3343cf // RFC 9369
	quicMostPackets = 64         // of a datagram, which may be as short as a header each
)

// quicForm holds the constants of one version of QUIC.
type quicForm struct {
	salt       string
	key        string // what stands before "key", "iv" and "hp" in labels
	initial    byte   // the number of the type of packet
	retry      byte
	recognised bool
}

// quicFormOf returns the form of a version. Drafts 29 to 32 and 33 to 34 differ in their salt
// alone.
func quicFormOf(version uint32) quicForm {
	const (
		v1    = "\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a"
		v2    = "\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9"
		d29   = "\xaf\xbf\xec\x28\x99\x93\xd2\x4c\x9e\x97\x86\xf1\x9c\x61\x11\xe0\x43\x90\xa8\x99"
		draft = 0xff000000
	)
	switch {
	case version == 1, version == draft+33, version == draft+34:
		return quicForm{v1, "quic ", 0, 3, true}
	case version == quicV2:
		return quicForm{v2, "quicv2 ", 1, 0, true}
	case version >= draft+29 && version <= draft+32:
		return quicForm{d29, "quic ", 0, 3, true}
	}
	return quicForm{}
}

// quicKeys open the Initials of a client. They follow from the connection ID that it has chosen,
// which each who sees the packet knows: what they open is not secret, and proves nothing.
type quicKeys struct {
	aead   cipher.AEAD
	header cipher.Block
	iv     []byte
}

// quicKeysOf returns the keys for a connection ID (RFC 9001, section 5.2); nil: there are none.
func quicKeysOf(form quicForm, id []byte) *quicKeys {
	initial, err := hkdf.Extract(sha256.New, id, []byte(form.salt))
	if err != nil {
		return nil
	}
	client, err := quicExpand(initial, "client in", sha256.Size)
	if err != nil {
		return nil
	}
	key, err1 := quicExpand(client, form.key+"key", quicKeyBytes)
	iv, err2 := quicExpand(client, form.key+"iv", quicIVBytes)
	hp, err3 := quicExpand(client, form.key+"hp", quicKeyBytes)
	if err1 != nil || err2 != nil || err3 != nil {
		return nil
	}
	block, err1 := aes.NewCipher(key)
	header, err2 := aes.NewCipher(hp)
	if err1 != nil || err2 != nil {
		return nil
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil
	}
	return &quicKeys{aead, header, iv}
}

// quicExpand is HKDF-Expand-Label (RFC 8446, section 7.1) without a context.
func quicExpand(secret []byte, label string, n int) ([]byte, error) {
	label = "tls13 " + label
	info := append([]byte{byte(n >> 8), byte(n), byte(len(label))}, label...)
	return hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
}

// open opens a packet whose number stands at an offset: its frames, nil of one that is not of these
// keys. It changes nothing of the packet.
func (k *quicKeys) open(packet []byte, at int) []byte {
	if at+4+quicSample > len(packet) {
		return nil
	}
	var mask [aes.BlockSize]byte
	k.header.Encrypt(mask[:], packet[at+4:at+4+quicSample])
	first := packet[0] ^ mask[0]&0x0f
	n := int(first&3) + 1
	header := bytes.Clone(packet[:at+n])
	header[0] = first
	nonce := bytes.Clone(k.iv)
	for i := range n {
		header[at+i] ^= mask[1+i]
		// The number is short, so all in front of it is zero: a client begins at 0.
		nonce[len(nonce)-n+i] ^= header[at+i]
	}
	frames, err := k.aead.Open(nil, nonce, packet[at+n:], header)
	if err != nil {
		return nil
	}
	return frames
}

// quicParser joins the ClientHello of what Initials carry. Its parts may be in any order, and in
// several packets and datagrams.
type quicParser struct {
	version uint32
	keys    *quicKeys
	pieces  pieces
	read    *hello
}

func (p *quicParser) Held() int { return p.pieces.bytes() }

func (p *quicParser) End() bool { return false }

func (p *quicParser) Record() map[string]any {
	of := p.read.record('q')
	of["version"] = strconv.FormatUint(uint64(p.version), 16)
	return map[string]any{"quic": of}
}

func (p *quicParser) Feed(b []byte) Answer {
	if a := p.packets(b); a != More {
		return a
	}
	switch {
	case p.keys == nil:
		return Unknown
	case p.read != nil:
		return Done
	}
	return p.hello()
}

// packets reads the Initials of a datagram, up to the first that no keys open, or that has another
// connection ID than the first: receivers ignore those (RFC 9000, section 12.2). Keys for each
// packet would cost as much as whole datagrams.
func (p *quicParser) packets(b []byte) Answer {
	var first quicHeader
	whole := len(b)
	for n := range quicMostPackets {
		if len(b) == 0 || b[0]&0x80 == 0 { // padding, or a short header, which ends the datagram
			break
		}
		h, ok := quicHeaderOf(b)
		if n == 0 {
			first = h
		}
		if !ok || h.version != first.version || !bytes.Equal(h.id, first.id) {
			break
		}
		if h.initial {
			if whole < quicLeastBytes {
				return Unknown
			}
			frames, a := p.open(h, b[:h.end])
			if frames == nil {
				return a
			}
			if a := p.frames(frames); a != More {
				return a
			}
		}
		b = b[h.end:]
	}
	return More
}

// quicHeader holds the fields of a long header.
type quicHeader struct {
	version uint32
	form    quicForm
	id      []byte // of the destination
	token   bool
	initial bool
	number  int // where the packet's number is
	end     int // of the packet
}

// quicHeaderOf reads a long header (RFC 9000, section 17.2); false: the rest of the datagram cannot
// be read.
func quicHeaderOf(b []byte) (h quicHeader, ok bool) {
	c := &cutter{b: b[1:]}
	h.version = binary.BigEndian.Uint32(c.take(4))
	h.form = quicFormOf(h.version)
	n := c.one()
	if n > quicMostID {
		return h, false
	}
	h.id = c.take(n)
	c.take(c.one())
	typ := b[0] >> 4 & 3
	if c.bad || !h.form.recognised || typ == h.form.retry {
		return h, false
	}
	if h.initial = typ == h.form.initial; h.initial {
		n := c.varint()
		h.token = n > 0
		c.take(n)
	}
	n = c.varint()
	h.number = len(b) - len(c.b)
	h.end = h.number + n
	return h, !c.bad && n > 0 && n <= len(c.b)
}

// varint returns a number of variable length (RFC 9000, section 16). One that is larger than any
// datagram is too long.
func (c *cutter) varint() int {
	first := c.one()
	n := uint64(first & 0x3f)
	for range 1<<(first>>6) - 1 {
		n = n<<8 | uint64(c.one())
	}
	const most = 1 << 30
	if n >= most {
		c.bad, c.b = true, nil
		return 0
	}
	return int(n)
}

// open opens an Initial: its frames, nil of one that no keys open, which is of nobody. Where a
// packet opens with keys of its own, another client has begun, and nothing is known: or the same
// has, where it brings the token of a Retry, and then says what it said.
func (p *quicParser) open(h quicHeader, packet []byte) ([]byte, Answer) {
	if p.keys != nil && p.version == h.version {
		if frames := p.keys.open(packet, h.number); frames != nil {
			return frames, More
		}
	}
	own := quicKeysOf(h.form, h.id)
	if own == nil {
		return nil, More
	}
	frames := own.open(packet, h.number)
	if frames == nil {
		return nil, More
	}
	if p.keys != nil && !h.token {
		return nil, Unknown
	}
	p.keys, p.version = own, h.version
	return frames, More
}

// frames reads the frames of an Initial (RFC 9000, section 17.2.2).
func (p *quicParser) frames(b []byte) Answer {
	for c := (&cutter{b: b}); len(c.b) > 0; {
		switch typ := c.varint(); typ {
		case quicPadding, quicPing:
		case quicACK, quicACKWithECN:
			c.varint() // the largest number
			c.varint() // the delay
			ranges := c.varint()
			c.varint()
			for ; ranges > 0 && !c.bad; ranges-- {
				c.varint()
				c.varint()
			}
			for range 3 * (typ - quicACK) {
				c.varint()
			}
		case quicCrypto:
			at := c.varint()
			data := c.take(c.varint())
			if c.bad || !p.pieces.add(at, data) {
				return Unknown
			}
		case quicConnClose:
			return More // nothing comes behind it
		default:
			return Unknown
		}
		if c.bad {
			return Unknown
		}
	}
	return More
}

// hello reads the ClientHello once it is whole.
func (p *quicParser) hello() Answer {
	var ok bool
	got := p.pieces.front()
	switch n, a := helloBytes(got); {
	case a != Done:
		return a
	default:
		if p.read, ok = readHello(got[helloHeader:n], false); !ok {
			return Unknown
		}
	}
	return Done
}
