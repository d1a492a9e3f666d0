package template

import (
	"encoding/binary"

	"levee/internal/packet"
)

// write makes frame n of the packet in buf.
func (k *plan) write(buf []byte, n uint64) []byte {
	s := &k.shapes[0]
	if k.length != nil {
		s = &k.shapes[k.length.index(n)]
	}
	b := buf[:s.frame]
	copy(b, k.frame)
	ip, l4 := uint64(s.ipSum), uint64(s.l4Sum)
	for i := range k.fields {
		f := &k.fields[i]
		hi, lo := f.value(f.index(n))
		c := f.put(b, hi, lo)
		if f.inIP {
			ip += c
		}
		if f.inL4 {
			l4 += c
		}
	}
	if k.ipLen > 0 {
		binary.BigEndian.PutUint16(b[k.ipLen:], s.ipLen)
	}
	if k.udpLen > 0 {
		binary.BigEndian.PutUint16(b[k.udpLen:], s.udpLen)
	}
	if k.random > 0 {
		l4 += uint64(s.withoutPay) - uint64(s.l4Sum) + k.fillRandom(b[k.random:], n)
	}
	if k.ipSum != nil {
		k.ipSum.finish(b, ip)
	}
	if k.l4Sum != nil {
		k.l4Sum.finish(b, l4)
	}
	if k.crc {
		k.layout.Seal(b, true, false)
		if k.spoilCRC {
			k.layout.Spoil(b, packet.WordChecksum)
		}
	}
	return b
}

// put writes a value and returns what it adds to a sum of big-endian words.
func (f *field) put(b []byte, hi, lo uint64) uint64 {
	switch {
	case f.bits == 128:
		binary.BigEndian.PutUint64(b[f.from:], hi)
		binary.BigEndian.PutUint64(b[f.from+8:], lo)
		return hi>>32 + hi&0xffffffff + lo>>32 + lo&0xffffffff
	case f.bit%8 == 0 && f.bits == 32:
		binary.BigEndian.PutUint32(b[f.from:], uint32(lo))
	case f.bit%8 == 0 && f.bits == 16:
		binary.BigEndian.PutUint16(b[f.from:], uint16(lo))
	default:
		packet.Put(b, f.bit, f.bits, lo)
	}
	return lo << f.shift()
}

// shift returns how far a value stands above the end of its last 16-bit word.
func (f *field) shift() int {
	return (f.to+f.to%2)*8 - f.bit - f.bits
}

// fillRandom draws the bytes of b and returns their sum of big-endian words; b begins at random.
func (k *plan) fillRandom(b []byte, n uint64) uint64 {
	seed := draw(k.seed, n)
	whole := b
	for i := uint64(0); len(b) > 0; i++ {
		var w [8]byte
		binary.BigEndian.PutUint64(w[:], draw(seed, i))
		b = b[copy(b, w[:]):]
	}
	s := uint32(0)
	if k.random%2 == 1 && len(whole) > 0 { // the byte before it began the word
		s, whole = uint32(whole[0]), whole[1:]
	}
	return uint64(words(whole, s))
}

// finish writes the checksum of a sum that is not folded yet.
func (s *sum) finish(b []byte, acc uint64) {
	for acc > 0xffff {
		acc = acc>>16 + acc&0xffff
	}
	c := ^uint16(acc)
	if s.nonzero && c == 0 {
		c = 0xffff
	}
	if s.wrong {
		if c ^= 1; c == 0 { // as packet.Layout.Spoil
			c = 3
		}
	}
	binary.BigEndian.PutUint16(b[s.at:], c)
}
