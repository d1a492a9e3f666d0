// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a hash of a flow's key costs in eBPF: a program for each function and each length, since a
// length that is known when compiling is what a real program has. Each hashes the keys of a table
// CALLS times; a program that reads the first word of each key instead is the base to subtract.
// Package hash loads these, and compares each hash with an implementation in Go.
//
// Written from the specifications that stand beside each function.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define KEYS 256 // a power of two; with LONGEST they stay in a first-level cache of 32 KB
#define LONGEST 64
#define CALLS 65536
#define BATCH 32
#define CRC_TABLES 8

const volatile __u8 chained = 0; // 1: the hash before chooses each key
const volatile __u8 keep = 0;    // store each hash
const volatile __u64 secret[2] = {};
const volatile __u32 crc_table[CRC_TABLES][256] = {};

__u64 keys[KEYS][LONGEST / 8];
__u64 hashes[KEYS];
__u64 total;

// 8 and 4 bytes at an offset that is a multiple of 4, little-endian as this machine is.
static __always_inline __u64 word(const __u64 *key, __u32 at)
{
	if (at % 8)
		return ((const __u32 *)key)[at / 4] | (__u64)((const __u32 *)key)[at / 4 + 1] << 32;
	return key[at / 8];
}

static __always_inline __u32 half(const __u64 *key, __u32 at)
{
	return ((const __u32 *)key)[at / 4];
}

static __always_inline __u64 rotl64(__u64 x, int n)
{
	return x << n | x >> (64 - n);
}

static __always_inline __u32 rotl32(__u32 x, int n)
{
	return x << n | x >> (32 - n);
}

// base is what every program does.
static __always_inline __u64 base(const __u64 *key, __u32 length)
{
	return half(key, 0);
}

// SipHash-c-d: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (INDOCRYPT 2012), section
// 2.
struct sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline void sip_round(struct sip *s)
{
	s->v0 += s->v1;
	s->v2 += s->v3;
	s->v1 = rotl64(s->v1, 13) ^ s->v0;
	s->v3 = rotl64(s->v3, 16) ^ s->v2;
	s->v0 = rotl64(s->v0, 32) + s->v3;
	s->v2 += s->v1;
	s->v1 = rotl64(s->v1, 17) ^ s->v2;
	s->v3 = rotl64(s->v3, 21) ^ s->v0;
	s->v2 = rotl64(s->v2, 32);
}

static __always_inline __u64 siphash(const __u64 *key, __u32 length, int compress, int finish)
{
	struct sip s = {
		secret[0] ^ 0x736f6d6570736575, secret[1] ^ 0x646f72616e646f6d,
		secret[0] ^ 0x6c7967656e657261, secret[1] ^ 0x7465646279746573,
	};
	__u64 last = (__u64)length << 56;

#pragma unroll
	for (__u32 at = 0; at + 8 <= length; at += 8) {
		s.v3 ^= key[at / 8];
#pragma unroll
		for (int i = 0; i < compress; i++)
			sip_round(&s);
		s.v0 ^= key[at / 8];
	}
	if (length % 8)
		last |= half(key, length - 4);
	s.v3 ^= last;
#pragma unroll
	for (int i = 0; i < compress; i++)
		sip_round(&s);
	s.v0 ^= last;
	s.v2 ^= 0xff;
#pragma unroll
	for (int i = 0; i < finish; i++)
		sip_round(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

static __always_inline __u64 siphash24(const __u64 *key, __u32 length)
{
	return siphash(key, length, 2, 4);
}

static __always_inline __u64 siphash13(const __u64 *key, __u32 length)
{
	return siphash(key, length, 1, 3);
}

// Jenkins, lookup3 (burtleburtle.net/bob/c/lookup3.c, public domain), which Linux calls jhash.
static __always_inline void jhash_mix(__u32 *a, __u32 *b, __u32 *c)
{
	*a = (*a - *c) ^ rotl32(*c, 4);
	*c += *b;
	*b = (*b - *a) ^ rotl32(*a, 6);
	*a += *c;
	*c = (*c - *b) ^ rotl32(*b, 8);
	*b += *a;
	*a = (*a - *c) ^ rotl32(*c, 16);
	*c += *b;
	*b = (*b - *a) ^ rotl32(*a, 19);
	*a += *c;
	*c = (*c - *b) ^ rotl32(*b, 4);
	*b += *a;
}

static __always_inline __u64 jhash(const __u64 *key, __u32 length)
{
	__u32 a = 0xdeadbeef + length + (__u32)secret[0], b = a, c = a, at = 0;

#pragma unroll
	for (; length - at > 12; at += 12) {
		a += half(key, at);
		b += half(key, at + 4);
		c += half(key, at + 8);
		jhash_mix(&a, &b, &c);
	}
	a += half(key, at);
	if (length - at > 4)
		b += half(key, at + 4);
	if (length - at > 8)
		c += half(key, at + 8);
	c = (c ^ b) - rotl32(b, 14);
	a = (a ^ c) - rotl32(c, 11);
	b = (b ^ a) - rotl32(a, 25);
	c = (c ^ b) - rotl32(b, 16);
	a = (a ^ c) - rotl32(c, 4);
	b = (b ^ a) - rotl32(a, 14);
	c = (c ^ b) - rotl32(b, 24);
	return c;
}

// XXH3, 64 bits, for 4 to 128 bytes: xxHash specification 0.2.0, sections XXH3 "small" and "medium"
// inputs. The words are the first of its default secret.
#define S0 0xbe4ba423396cfeb8
#define S8 0x1cad21f72c81017c
#define S16 0xdb979083e96dd4de
#define S24 0x1f67b3b7a4a44072
#define S32 0x78e5c0cc4ee679cb
#define S40 0x2172ffcc7dd05a82
#define S48 0x8e2443f7744608b8
#define S56 0x4c263a81e69035e0

// fold is the product of two words, upper and lower half joined by exclusive or. eBPF has no
// instruction for the upper half: four products of 32 bits.
static __always_inline __u64 fold(__u64 x, __u64 y)
{
	__u64 ll = (x & 0xffffffff) * (y & 0xffffffff), hl = (x >> 32) * (y & 0xffffffff);
	__u64 lh = (x & 0xffffffff) * (y >> 32), hh = (x >> 32) * (y >> 32);
	__u64 middle = (ll >> 32) + (hl & 0xffffffff) + lh;

	return ((middle << 32) | (ll & 0xffffffff)) ^ (hh + (hl >> 32) + (middle >> 32));
}

static __always_inline __u64 xxh3_avalanche(__u64 x)
{
	x ^= x >> 37;
	x *= 0x165667919e3779f9;
	return x ^ x >> 32;
}

static __always_inline __u64 xxh3_mix(const __u64 *key, __u32 at, __u64 s0, __u64 s1)
{
	return fold(word(key, at) ^ (s0 + secret[0]), word(key, at + 8) ^ (s1 - secret[0]));
}

static __always_inline __u64 xxh3(const __u64 *key, __u32 length)
{
	__u64 x, y;

	if (length <= 8) {
		y = secret[0] ^ (__u64)__builtin_bswap32((__u32)secret[0]) << 32;
		x = half(key, length - 4) | (__u64)half(key, 0) << 32;
		x ^= (S8 ^ S16) - y;
		x ^= rotl64(x, 49) ^ rotl64(x, 24);
		x *= 0x9fb21c651e98df25;
		x ^= (x >> 35) + length;
		x *= 0x9fb21c651e98df25;
		return x ^ x >> 28;
	}
	if (length <= 16) {
		x = word(key, 0) ^ ((S24 ^ S32) + secret[0]);
		y = word(key, length - 8) ^ ((S40 ^ S48) - secret[0]);
		return xxh3_avalanche(length + __builtin_bswap64(x) + y + fold(x, y));
	}
	x = length * 0x9e3779b185ebca87;
	if (length > 32) {
		x += xxh3_mix(key, 16, S32, S40);
		x += xxh3_mix(key, length - 32, S48, S56);
	}
	x += xxh3_mix(key, 0, S0, S8);
	x += xxh3_mix(key, length - 16, S16, S24);
	return xxh3_avalanche(x);
}

// MurmurHash3_x86_32 (Appleby, github.com/aappleby/smhasher, public domain).
static __always_inline __u64 murmur3(const __u64 *key, __u32 length)
{
	__u32 h = (__u32)secret[0], k;

#pragma unroll
	for (__u32 at = 0; at < length; at += 4) {
		k = half(key, at) * 0xcc9e2d51;
		h ^= rotl32(k, 15) * 0x1b873593;
		h = rotl32(h, 13) * 5 + 0xe6546b64;
	}
	h ^= length;
	h = (h ^ h >> 16) * 0x85ebca6b;
	h = (h ^ h >> 13) * 0xc2b2ae35;
	return h ^ h >> 16;
}

// CRC-32C (RFC 3720, appendix B.4), eight bytes a step by eight tables (Kounavis and Berry, "A
// Systematic Approach to Building High Performance Software-based CRC Generators", ISCC 2005).
static __always_inline __u64 crc32c(const __u64 *key, __u32 length)
{
	__u32 crc = 0xffffffff, at = 0, x, y;

#pragma unroll
	for (; at + 8 <= length; at += 8) {
		x = crc ^ half(key, at);
		y = half(key, at + 4);
		crc = crc_table[7][x & 0xff] ^ crc_table[6][x >> 8 & 0xff] ^ crc_table[5][x >> 16 & 0xff] ^
		      crc_table[4][x >> 24] ^ crc_table[3][y & 0xff] ^ crc_table[2][y >> 8 & 0xff] ^
		      crc_table[1][y >> 16 & 0xff] ^ crc_table[0][y >> 24];
	}
	if (at < length) {
		x = crc ^ half(key, at);
		crc = crc_table[3][x & 0xff] ^ crc_table[2][x >> 8 & 0xff] ^ crc_table[1][x >> 16 & 0xff] ^
		      crc_table[0][x >> 24];
	}
	return ~crc;
}

// SHA-256 (FIPS 180-4, section 6.2), of which the first 64 bits are taken.
static const __u32 sha_k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

// The words of a block that is under way: with the state they are more than the 512 bytes of a
// program's stack, as compilers use it.
__u32 sha_w[16];

// sha_block works the 16 words into the state.
static __always_inline void sha_block(__u32 state[8])
{
	__u32 a = state[0], b = state[1], c = state[2], d = state[3];
	__u32 e = state[4], f = state[5], g = state[6], h = state[7];

#pragma clang loop unroll(disable)
	for (__u32 round = 0; round < 64; round += 8) {
#pragma unroll
		for (__u32 i = 0; i < 8; i++) {
			__u32 t = round + i;
			__u32 x = sha_w[(t + 1) & 15], y = sha_w[(t + 14) & 15], t1, t2;

			t1 = h + (rotl32(e, 26) ^ rotl32(e, 21) ^ rotl32(e, 7)) + (g ^ (e & (f ^ g))) +
			     sha_k[t] + sha_w[t & 15];
			t2 = (rotl32(a, 30) ^ rotl32(a, 19) ^ rotl32(a, 10)) + ((a & b) | (c & (a | b)));
			sha_w[t & 15] += (rotl32(x, 25) ^ rotl32(x, 14) ^ x >> 3) +
					 sha_w[(t + 9) & 15] +
					 (rotl32(y, 15) ^ rotl32(y, 13) ^ y >> 10);
			h = g;
			g = f;
			f = e;
			e = d + t1;
			d = c;
			c = b;
			b = a;
			a = t1 + t2;
		}
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
	state[5] += f;
	state[6] += g;
	state[7] += h;
}

static __always_inline __u64 sha256(const __u64 *key, __u32 length)
{
	__u32 state[8] = {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
		0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	};

	// Each block has 64 bytes. Nine bytes follow the data: a set bit, and the length in bits.
#pragma unroll
	for (__u32 from = 0; from < length + 9; from += 64) {
#pragma unroll
		for (__u32 i = 0; i < 16; i++) {
			__u32 at = from + 4 * i;

			sha_w[i] = at < length ? __builtin_bswap32(half(key, at)) :
				   at == length ? 0x80000000 :
				   i == 15 && from + 64 >= length + 9 ? length * 8 : 0;
		}
		sha_block(state);
	}
	return (__u64)state[0] << 32 | state[1];
}

// batch is a round of the outer loop: enough hashes that the call of it does not hide their
// latency.
static __always_inline long batch(__u32 round, __u64 (*hash)(const __u64 *, __u32), __u32 length)
{
	__u64 sum = total, h;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < BATCH; i++) {
		__u32 k = round * BATCH + i;

		if (chained)
			k ^= sum & 1;
		k &= KEYS - 1;
		h = hash(keys[k], length);
		if (keep)
			hashes[k] = h;
		sum += h;
	}
	total = sum;
	return 0;
}

#define PROGRAM(hash, length) \
	static long hash##_##length##_batch(__u32 round, void *unused) \
	{ \
		return batch(round, hash, length); \
	} \
	SEC("tc") int hash##_##length(struct __sk_buff *skb) \
	{ \
		bpf_loop(CALLS / BATCH, hash##_##length##_batch, 0, 0); \
		return 0; \
	}

#define PROGRAMS(hash) \
	PROGRAM(hash, 4) \
	PROGRAM(hash, 8) \
	PROGRAM(hash, 16) \
	PROGRAM(hash, 32) \
	PROGRAM(hash, 36) \
	PROGRAM(hash, 64)

PROGRAM(base, 4)
PROGRAMS(siphash24)
PROGRAMS(siphash13)
PROGRAMS(jhash)
PROGRAMS(xxh3)
PROGRAMS(murmur3)
PROGRAMS(crc32c)
PROGRAMS(sha256)

char _license[] SEC("license") = "Dual BSD/GPL";
