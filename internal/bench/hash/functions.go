package hash

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/dchest/siphash"
	"github.com/twmb/murmur3"
	"github.com/zeebo/xxh3"

	"levee/internal/bench/hash/sip13"
)

// Secret is the key of keyed functions; the others take the first word, or its lower half, as their
// seed.
type Secret [2]uint64

// function is one hash.
type function struct {
	name string
	what string
	bits int
	// hash of a key of 4 bytes or more, a multiple of 4.
	hash func(key []byte, s *Secret) uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// functions are those that are compared; names are those of the programs.
var functions = []function{
	{"siphash24", "SipHash-2-4, keyed; against who chooses what is hashed", 64,
		func(k []byte, s *Secret) uint64 { return siphash.Hash(s[0], s[1], k) }},
	{"siphash13", "SipHash-1-3, keyed, as in the hash tables of Linux and Rust", 64,
		func(k []byte, s *Secret) uint64 { return sip13.Sum64(s[0], s[1], k) }},
	{"jhash", "Jenkins' lookup3, the kernel's jhash; seeded, not keyed", 32,
		func(k []byte, s *Secret) uint64 { return uint64(jhash(k, uint32(s[0]))) }},
	{"xxh3", "XXH3, 64 bits; seeded, not keyed", 64,
		func(k []byte, s *Secret) uint64 { return xxh3.HashSeed(k, s[0]) }},
	{"murmur3", "MurmurHash3_x86_32; seeded, not keyed", 32,
		func(k []byte, s *Secret) uint64 { return uint64(murmur3.SeedSum32(uint32(s[0]), k)) }},
	{"crc32c", "CRC-32C; a checksum: linear, no seed. Eight tables in eBPF, which has no " +
		"instruction for it", 32,
		func(k []byte, _ *Secret) uint64 { return uint64(crc32.Checksum(k, castagnoli)) }},
	{"sha256", "SHA-256, its first 64 bits; no seed", 64,
		func(k []byte, _ *Secret) uint64 {
			sum := sha256.Sum256(k)
			return binary.BigEndian.Uint64(sum[:])
		}},
}

// base returns what the loop does without a hash.
func base(key []byte, _ *Secret) uint64 { return uint64(load32(key)) }

func load32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// jhash is lookup3 (Bob Jenkins, burtleburtle.net/bob/c/lookup3.c, public domain, function
// hashlittle), for any length; Linux has it in include/linux/jhash.h. No Go module that is kept up
// has it with a seed.
func jhash(key []byte, seed uint32) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + seed
	b, c := a, a
	for ; len(key) > 12; key = key[12:] {
		a += load32(key)
		b += load32(key[4:])
		c += load32(key[8:])
		a, c = a-c^bits.RotateLeft32(c, 4), c+b
		b, a = b-a^bits.RotateLeft32(a, 6), a+c
		c, b = c-b^bits.RotateLeft32(b, 8), b+a
		a, c = a-c^bits.RotateLeft32(c, 16), c+b
		b, a = b-a^bits.RotateLeft32(a, 19), a+c
		c, b = c-b^bits.RotateLeft32(b, 4), b+a
	}
	if len(key) == 0 {
		return c
	}
	var rest [12]byte
	copy(rest[:], key)
	a += load32(rest[:])
	b += load32(rest[4:])
	c += load32(rest[8:])
	c = c ^ b - bits.RotateLeft32(b, 14)
	a = a ^ c - bits.RotateLeft32(c, 11)
	b = b ^ a - bits.RotateLeft32(a, 25)
	c = c ^ b - bits.RotateLeft32(b, 16)
	a = a ^ c - bits.RotateLeft32(c, 4)
	b = b ^ a - bits.RotateLeft32(a, 14)
	c = c ^ b - bits.RotateLeft32(b, 24)
	return c
}

// crcTables returns those of slicing by eight, of the reversed polynomial of CRC-32C (RFC 3720,
// appendix B.4): the k-th has what each byte with k bytes of zero behind it makes of an empty
// register. The library turns the register's bits at both ends.
func crcTables() (t [8][256]uint32) {
	for k := range t {
		for i := range t[k] {
			t[k][i] = ^crc32.Update(^uint32(0), castagnoli,
				append([]byte{byte(i)}, make([]byte, k)...))
		}
	}
	return t
}
