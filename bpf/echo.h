// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The memory of UDP flows whose clients have proven their address by sending back bytes of a reply.
#ifndef LEVEE_ECHO_H
#define LEVEE_ECHO_H

#include "flow.h"
#include "sip.h"

#define UDP_HEADER 8
#define ECHO_TALLIES 32
#define ECHO_ROWS 16 // CPUs share them
#define ECHO_BITS 1024

struct echo_count {
	__u64 given, proofs, wrong, unused[5];
};

// How often values were given, proved somebody, and were wrong; and which of 1,024 classes the
// values are of, which tells how many different ones there are.
struct echo_tally {
	struct echo_count row[ECHO_ROWS];
	__u64 classes[ECHO_BITS / 64];
};

struct echo_head {
	__u64 start, last;           // of the hash of a flow, as in struct flow_head
	__u64 factors[FLOW_FACTORS]; //
	__u64 key[2];                // of values
	__u64 clock;                 // jiffies for tests, 0 for those of the kernel
	__u32 second, lease;         // of a flow, in jiffies
	__u32 idle;                  // after which a flow may lose its place
	__u32 holds;                 // how long a value does
	__u64 refused;               // proofs that found no place
	__u64 taken;                 // places taken from flows whose lease had not ended
	__u32 unit;                  // of the time of a mark: so many bits of jiffies are below it
	__u32 unused;
	__u64 rest[10];
};

_Static_assert(offsetof(struct echo_head, factors) == offsetof(struct flow_head, factors),
	       "flow_hash reads both");
_Static_assert(sizeof(struct echo_head) % 64 == 0, "lines lie in cache lines");

#define ECHO_LINE 8
#define ECHO_LINES (1 << 15)

// What tells that a line need not be read, since packets of a flood have nothing there. Bit n of
// tags is set where the tag of a flow may end in n. given is when a flow of the line was given a
// value last: 8 bits of the time, or 0 for never. They come around after some minutes, and the line
// is read in vain then.
struct echo_mark {
	__u8 tags, given;
};

// Values and flows have lines of their own, so that no value takes the place of a flow. A value is
// 40 bits of its hash above its time; a flow is a tag of its hash above the time at which its proof
// ends. Zero is an empty place.
struct echo_memory {
	struct echo_head head;
	struct echo_tally tallies[ECHO_TALLIES];
	struct echo_mark marks[ECHO_LINES];
	__u64 values[ECHO_LINES][ECHO_LINE];
	__u64 flows[ECHO_LINES][ECHO_LINE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct echo_memory);
} echoes SEC(".maps");

#define TIME_BITS 24
#define TIME_MASK ((1 << TIME_BITS) - 1)

static __always_inline __u64 echo_clock(const struct echo_memory *m)
{
	return m->head.clock ? m->head.clock : bpf_jiffies64();
}

static __always_inline __u32 line_of(__u64 hash) { return hash >> 48 & (ECHO_LINES - 1); }

static __always_inline struct echo_tally *tally_of(struct echo_memory *m, __u32 tally)
{
	return &m->tallies[tally & (ECHO_TALLIES - 1)];
}

static __always_inline struct echo_count *row_of(struct echo_tally *t)
{
	return &t->row[bpf_get_smp_processor_id() & (ECHO_ROWS - 1)];
}

// note_given counts a value that a client is given, which is of some class.
static __always_inline void note_given(struct echo_tally *t, __u32 class)
{
	__u64 *seen = &t->classes[class >> 6 & (ECHO_BITS / 64 - 1)], bit = 1ULL << (class & 63);

	__sync_fetch_and_add(&row_of(t)->given, 1);
	if (!(*seen & bit))
		__sync_fetch_and_or(seen, bit);
}

#define NUMBER_PERIOD 64 // seconds for which a number is given; it holds for one period more

// number_period is the period of now.
static __always_inline __u64 number_period(const struct echo_memory *m)
{
	__u64 second = m->head.second;

	return second ? echo_clock(m) / (NUMBER_PERIOD * second) : 0;
}

// number is what a cookie has a flow send back. Nothing is kept of it. Its lowest bit is that of
// the period, so that a proof asks for one hash.
static __always_inline __u32 number(const struct echo_head *h, __u64 flow, __u64 period)
{
	const __u64 words[] = {flow, period};

	return ((__u32)sip_hash(h->key, words, 2) & ~1U) | (period & 1);
}

static __always_inline __u64 flow_word(__u64 flow, __u32 ends)
{
	return (flow | 1) << 32 | ends;
}

// left is how long a flow is proven still, 0 of one that is not.
static __always_inline __u32 left(const struct echo_head *h, __u64 word, __u32 now)
{
	__u32 rest = (__u32)word - now;

	return word && rest - 1 < h->lease ? rest : 0;
}

// prove_flow marks a flow as proven and returns 1. It takes an empty or expired place of the line,
// else the place of the flow that has been idle longest, if that was for head.idle at least.
// Otherwise it counts a refusal and returns 0.
static __always_inline int prove_flow(struct echo_memory *m, __u64 flow)
{
	__u32 line = line_of(flow), now = echo_clock(m);
	__u64 tag = flow_word(flow, 0) >> 32, best = ~0ULL >> 1;
	__u8 all = 1 << (tag >> 1 & 7);
	WORDS __u32 slots[2];

	for (int i = 0; i < ECHO_LINE; i++) {
		__u64 word = m->flows[line][i];
		__u64 rest = word >> 32 == tag ? 0 : left(&m->head, word, now);

		best = least_of((__u64)forget_word(&slots[1], rest) * ECHO_LINE + i, best);
	}
	__u64 least = best / ECHO_LINE;

	if (least > m->head.lease - m->head.idle) {
		__sync_fetch_and_add(&m->head.refused, 1);
		return 0;
	}
	if (least)
		__sync_fetch_and_add(&m->head.taken, 1);
	m->flows[line][best & (ECHO_LINE - 1)] =
		flow_word(flow, now + m->head.lease - m->head.second);
	// A bit that another CPU has lost meanwhile is set again by the next proof.
	for (int i = 0; i < ECHO_LINE; i++) {
		__u64 word = m->flows[line][i];

		all |= (word >> 32 & 1) << (word >> 33 & 7); // the lowest bit of a tag is set
	}
	m->marks[line].tags = all;
	return 1;
}

#endif
