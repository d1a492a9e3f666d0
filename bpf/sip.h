// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// SipHash, for keys that strangers choose.
#ifndef LEVEE_SIP_H
#define LEVEE_SIP_H

#include <linux/types.h>

#define ROTATE(x, n) ((x) << (n) | (x) >> (64 - (n)))

struct sip {
	__u64 a, b, c, d;
};

static __always_inline void sip_round(struct sip *s)
{
	s->a += s->b;
	s->b = ROTATE(s->b, 13) ^ s->a;
	s->a = ROTATE(s->a, 32);
	s->c += s->d;
	s->d = ROTATE(s->d, 16) ^ s->c;
	s->a += s->d;
	s->d = ROTATE(s->d, 21) ^ s->a;
	s->c += s->b;
	s->b = ROTATE(s->b, 17) ^ s->c;
	s->c = ROTATE(s->c, 32);
}

// sip_hash is SipHash-1-3 (Aumasson and Bernstein, 2012; Linux uses it as hsiphash) of n words,
// 6 at most.
static __always_inline __u64 sip_hash(const __u64 key[2], const __u64 *words, const int n)
{
	struct sip s = {
		key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
		key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573,
	};

	for (int i = 0; i <= n; i++) {
		__u64 word = i < n ? words[i] : 8ULL * n << 56;

		s.d ^= word;
		sip_round(&s);
		s.a ^= word;
	}
	s.c ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(&s);
	return s.a ^ s.b ^ s.c ^ s.d;
}

#endif
