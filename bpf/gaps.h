// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A histogram of times in buckets of an eighth of a power of two.
#ifndef LEVEE_GAPS_H
#define LEVEE_GAPS_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define GAP_BITS 3 // a bucket is an eighth of a power of two
#define GAPS ((40 - GAP_BITS + 1) << GAP_BITS) // up to 2^40 ns

// gap_bucket is the bucket of a time in ns, GAPS or more for what is too long. Up to 2^GAP_BITS
// each bucket is one ns, then there are 2^GAP_BITS for each power of two.
static __always_inline __u32 gap_bucket(__u64 gap)
{
	__u64 g = gap;
	__u32 e = 0;

	if (g >> 32) {
		e = 32;
		g >>= 32;
	}
	if (g >> 16) {
		e += 16;
		g >>= 16;
	}
	if (g >> 8) {
		e += 8;
		g >>= 8;
	}
	if (g >> 4) {
		e += 4;
		g >>= 4;
	}
	if (g >> 2) {
		e += 2;
		g >>= 2;
	}
	e += g >> 1;
	if (e < GAP_BITS)
		return gap;
	gap >>= (e - GAP_BITS) & 63;
	return ((e - GAP_BITS + 1) << GAP_BITS) + (gap & ((1 << GAP_BITS) - 1));
}

#endif
