package cookie

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Prove has sources count as proven from a time in jiffies on, as if each had reset an answer. One
// whose line is full of others is left out. Programs may run meanwhile.
func Prove(memory []byte, sources []netip.Addr, jiffies uint64) {
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(memory[at:]) }
	key := [2]uint64{binary.NativeEndian.Uint64(memory), binary.NativeEndian.Uint64(memory[8:])}
	now, lease, second := uint32(jiffies), word(atLease), word(atSecond)
	for _, a := range sources {
		line, tag := place(key, a)
		first := atSources + line*lineSize
		free, tags := -1, bitOf(tag)
		for at := first; at < first+lineSize; at += sourceSize {
			switch t := word(at + ofTag); {
			case t == tag:
				free = at
			case t == 0 || word(at+ofExpires)-now-1 >= lease:
				if free < 0 {
					free = at
				}
			default:
				tags |= bitOf(t)
			}
		}
		if free < 0 {
			continue
		}
		binary.NativeEndian.PutUint32(memory[free+ofExpires:], now+lease-second)
		binary.NativeEndian.PutUint32(memory[free+ofTag:], tag)
		memory[atTags+line] = tags
	}
}

// bitOf is bit of bpf/cookie.bpf.c.
func bitOf(tag uint32) byte { return 1 << (tag & 7) }

// Classes of TCP that is no fragment, by CLASS of bpf/parse.h.
const (
	classIPv4 = 3
	classIPv6 = 17
)

// place returns the line of a source, and its tag: line of bpf/cookie.bpf.c.
func place(key [2]uint64, a netip.Addr) (line int, tag uint32) {
	class := uint64(classIPv6)
	if a.Unmap().Is4() {
		class = classIPv4
	}
	hi, lo := halves(a)
	hash := sip(key, []uint64{hi, class<<32 | 0xffffffff})
	within := lo * (hash<<1 | 1)
	return int(hash>>48^within>>28&(spread-1)) & (lines - 1), uint32(hash^within>>33) | 1<<31
}

// spread is the number of lines that the sources of a /64 share: COOKIE_SPREAD of bpf/cookie.h.
const spread = 16

// halves returns the upper and the lower half of an address, of IPv4 the address and 0.
func halves(a netip.Addr) (hi, lo uint64) {
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])), 0
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
}

// sip is SipHash-1-3 of whole words: sip_hash of bpf/sip.h.
func sip(key [2]uint64, words []uint64) uint64 {
	a, b := key[0]^0x736f6d6570736575, key[1]^0x646f72616e646f6d
	c, d := key[0]^0x6c7967656e657261, key[1]^0x7465646279746573
	round := func() {
		a += b
		b = bits.RotateLeft64(b, 13) ^ a
		a = bits.RotateLeft64(a, 32)
		c += d
		d = bits.RotateLeft64(d, 16) ^ c
		a += d
		d = bits.RotateLeft64(d, 21) ^ a
		c += b
		b = bits.RotateLeft64(b, 17) ^ c
		c = bits.RotateLeft64(c, 32)
	}
	for i := 0; i <= len(words); i++ {
		w := uint64(8*len(words)) << 56
		if i < len(words) {
			w = words[i]
		}
		d ^= w
		round()
		a ^= w
	}
	c ^= 0xff
	for range 3 {
		round()
	}
	return a ^ b ^ c ^ d
}
