package template

import (
	"encoding/binary"
	"fmt"

	"levee/internal/lang/spec"
	"levee/internal/packet"
)

// plan is one packet of a template, laid out: what stays the same, what varies, and the sums from
// which the checksums are finished.
type plan struct {
	layout packet.Layout
	// the longest one; bits that vary are zero, and so are checksums that are computed
	frame  []byte
	fields []field
	length *walk // index of the shape, nil where there is one only
	shapes []shape

	// Where what depends on the length stands, 0 where it is given or not there.
	ipLen, udpLen int
	ipSum, l4Sum  *sum
	crc           bool // SCTP: the checksum is not a sum
	spoilCRC      bool
	given         int // bytes of payload that the template gives
	random        int // where random payload begins, 0 for none
	seed          uint64
}

// field is a field that varies.
type field struct {
	walk
	word     string
	bit      int
	bits     int
	inIP     bool // counts in the checksum of the IPv4 header
	inL4     bool // counts in that of the transport, its pseudo-header included
	from, to int  // the bytes with some of its bits
}

// shape holds the fields of a frame that depend on its length.
type shape struct {
	frame      int    // bytes
	ipLen      uint16 // what stands in the header
	udpLen     uint16
	ipSum      uint32 // sum of all that stays the same
	l4Sum      uint32
	withoutPay uint32 // l4Sum without what random payload replaces
}

// sum is a checksum to finish.
type sum struct {
	at      int
	wrong   bool
	nonzero bool // zero means that there is none (RFC 768)
}

// maxShapes is the largest number of lengths that a packet may have.
const maxShapes = 1 << 14

func newPlan(p *spec.Packet, seed uint64) (*plan, error) {
	if p.Frame != nil {
		return &plan{frame: p.Frame, shapes: []shape{{frame: len(p.Frame)}}}, nil
	}
	if _, err := p.Build(); err != nil {
		return nil, err
	}
	frame, l, err := packet.BuildLayout(p.Spec)
	if err != nil {
		return nil, err
	}
	k := &plan{layout: l, frame: frame, given: len(p.Spec.Payload),
		seed: fieldSeed(seed, "payload")}
	given := map[string]bool{}
	wrong := map[string]bool{}
	for _, f := range p.Spec.Fields {
		given[f.Word] = !f.Wrong
		wrong[f.Word] = f.Wrong
	}
	var lengths *spec.Vary
	for i := range p.Vary {
		v := &p.Vary[i]
		if v.Word == spec.WordLen {
			lengths = v
			continue
		}
		given[v.Word] = true
		k.addField(v, fieldSeed(seed, v.Word))
	}
	k.addSums(given, wrong)
	if l.IP > 0 && !given["ip-len"] {
		k.ipLen = l.IP + 2
		if l.Six {
			k.ipLen = l.IP + 4
		}
	}
	if l.L4 > 0 && l.Proto == packet.ProtoUDP && !given["udp-len"] {
		k.udpLen = l.L4 + 4
	}
	if p.Random {
		k.random = l.Payload + len(p.Spec.Payload)
	}
	return k, k.addShapes(lengths, fieldSeed(seed, spec.WordLen))
}

func (k *plan) addField(v *spec.Vary, seed uint64) {
	bit, bits, _ := k.layout.Locate(k.frame, v.Word) // Build has found it
	f := field{walk: newWalk(v, seed), word: v.Word, bit: bit, bits: bits, from: bit / 8,
		to: (bit + bits + 7) / 8}
	l := &k.layout
	if l.IP > 0 {
		f.inIP = !l.Six && f.from >= l.IP && f.to <= l.IP+k.ipHeader()
		f.inL4 = l.L4 > 0 && (f.from >= l.L4 || (v.Word == "from" || v.Word == "to") &&
			l.Proto != packet.ProtoICMP)
	}
	for at, n := bit, bits; n > 0; at, n = at+32, n-32 {
		packet.Put(k.frame, at, min(n, 32), 0)
	}
	k.fields = append(k.fields, f)
}

// ipHeader returns the length of an IPv4 header.
func (k *plan) ipHeader() int {
	if l := &k.layout; l.L4 > 0 {
		return l.L4 - l.IP
	}
	return k.layout.Payload - k.layout.IP
}

// addSums finds the checksums to compute and makes them zero.
func (k *plan) addSums(given, wrong map[string]bool) {
	for word, to := range map[string]**sum{packet.WordIPChecksum: &k.ipSum,
		packet.WordChecksum: &k.l4Sum} {
		bit, bits, ok := k.layout.Locate(k.frame, word)
		if !ok || given[word] {
			continue
		}
		packet.Put(k.frame, bit, bits, 0)
		if bits == 32 {
			k.crc, k.spoilCRC = true, wrong[word]
			continue
		}
		udp := k.layout.Proto == packet.ProtoUDP || k.layout.Proto == packet.ProtoUDPLite
		*to = &sum{at: bit / 8, wrong: wrong[word], nonzero: word == packet.WordChecksum && udp}
	}
}

func (k *plan) addShapes(v *spec.Vary, seed uint64) error {
	if v == nil {
		k.shapes = []shape{k.shape(len(k.frame))}
		return nil
	}
	w := newWalk(v, seed)
	if w.size > maxShapes {
		return fmt.Errorf("len has %d values: at most %d", w.size, maxShapes)
	}
	start := k.layout.IP
	if start == 0 {
		start = k.layout.ARP
	}
	if start == 0 {
		start = k.layout.Payload
	}
	for i := range w.size {
		_, n := w.value(i)
		if start+int(n) < k.minLen() {
			return fmt.Errorf("len %d: this packet has at least %d bytes", n, k.minLen()-start)
		}
		k.shapes = append(k.shapes, k.shape(start+int(n)))
	}
	if w.size > 1 {
		k.length = &w
	}
	return nil
}

// minLen returns of the shortest frame: the headers, and payload that is given.
func (k *plan) minLen() int {
	if k.random > 0 {
		return k.random
	}
	return k.layout.Payload + k.given
}

// shape describes frames of n bytes. Sums are of big-endian 16-bit words.
func (k *plan) shape(n int) shape {
	l := &k.layout
	s := shape{frame: n}
	b := k.frame[:n]
	if l.IP > 0 {
		s.ipLen = uint16(n - l.IP)
		if l.Six {
			s.ipLen -= 40
		}
		if k.ipSum != nil {
			s.ipSum = words(b[l.IP:l.IP+k.ipHeader()], 0)
			if k.ipLen > 0 {
				s.ipSum += uint32(s.ipLen) - uint32(binary.BigEndian.Uint16(b[k.ipLen:]))
			}
		}
	}
	if l.L4 == 0 {
		return s
	}
	s.udpLen = uint16(n - l.L4)
	if k.l4Sum != nil {
		pseudo := uint32(0)
		if l.Proto != packet.ProtoICMP {
			addresses := b[l.IP+12 : l.IP+20]
			if l.Six {
				addresses = b[l.IP+8 : l.IP+40]
			}
			pseudo = words(addresses, uint32(l.Proto)+uint32(n-l.L4))
		}
		if k.udpLen > 0 {
			pseudo += uint32(s.udpLen) - uint32(binary.BigEndian.Uint16(b[k.udpLen:]))
		}
		s.l4Sum = words(b[l.L4:], pseudo)
		if k.random > 0 {
			s.withoutPay = words(b[l.L4:k.random], pseudo)
		}
	}
	return s
}

// words adds big-endian 16-bit words, a last odd byte as if followed by zero. A frame is too short
// to overflow.
func words(b []byte, s uint32) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}
