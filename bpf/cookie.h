// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What is kept of sources that have proven that they are there, and of the packets that come to
// cookies. Those that answer SYNs and those that answer queries share it.
#ifndef LEVEE_COOKIE_H
#define LEVEE_COOKIE_H

#include "meter.h"
#include "sip.h"

struct cookie_head {
	__u64 key[2]; // of SipHash
	__u64 clock;  // jiffies for tests, 0 for those of the kernel
	__u32 second; // in jiffies
	__u32 lease;  // of a source that is proven, in jiffies, and a second: see flow.h
	__u64 proven; // RSTs that proved their source
	__u64 forged; // RSTs that proved nothing
	__u64 evicted; // sources that lost their place before their lease had ended
	__u64 unused;
};

// A source that is proven; expires is the lower 32 bits of jiffies. A tag of 0 is no source: right
// after a boot, and every 50 days, a time of 0 lies ahead.
struct cookie_source {
	__u32 tag, expires;
};

#define COOKIE_LINE 8
#define COOKIE_LINES (1 << 16)
#define COOKIE_SPREAD 16 // lines of a /64: 128 of its sources can be proven at once
#define COOKIE_METERS 256 // a rule has the one of its number

struct cookie_memory {
	struct cookie_head head;
	struct meter meters[COOKIE_METERS];
	// A bit for the last three of each tag in a line: of forged sources most need not be looked for
	// in a line, which is a miss of all caches.
	__u8 tags[COOKIE_LINES];
	struct cookie_source sources[COOKIE_LINES][COOKIE_LINE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cookie_memory);
} cookies SEC(".maps");

// What becomes of a packet.
enum cookie_result {
	COOKIE_GOES_ON,
	COOKIE_ANSWERED, // the packet is the answer now
	COOKIE_DROPPED,  // it has proven its source, or could not be made the answer
};

static __always_inline __u64 clock_of(const struct cookie_memory *c)
{
	return c->head.clock ? c->head.clock : bpf_jiffies64();
}

// line returns the index of the line in which a source has its place, and sets its tag. The owner
// of a /64 can send from any address in it. All sources of a /64 therefore share COOKIE_SPREAD
// lines, so that he can displace sources in these lines only. The lower half of the address chooses
// among them, and gives the rest of the tag, by its product with a secret odd number from the hash
// (Dietzfelbinger and others, 1997). The lower half of an IPv4 address is 0. The tag includes the
// highest bit of the product, since two neighbours' products may differ in that bit only.
static __always_inline __u32 line(struct cookie_memory *c, __u64 hi, __u64 lo, __u32 class,
				  __u32 *tag)
{
	const __u64 words[] = {hi, (__u64)class << 32 | 0xffffffff}; // no period
	__u64 hash = sip_hash(c->head.key, words, 2);
	__u64 within = lo * (hash << 1 | 1);

	*tag = (__u32)(hash ^ within >> 33) | 1U << 31;
	__u64 line = hash >> 48 ^ (within >> 28 & (COOKIE_SPREAD - 1));

	// The verifier of Linux 6.1 does not know the bounds of what is xored. clang does, and would
	// leave out the mask.
	asm volatile("" : "+r"(line));
	return line & (COOKIE_LINES - 1);
}

static __always_inline __u8 bit(__u32 tag) { return 1 << (tag & 7); }

static __always_inline int is_proven(struct cookie_memory *c, __u64 hi, __u64 lo, __u32 class,
				     __u32 now)
{
	__u32 tag, at = line(c, hi, lo, class, &tag);
	struct cookie_source *s = c->sources[at];

	if (!(c->tags[at] & bit(tag)))
		return 0;
	for (int i = 0; i < COOKIE_LINE; i++)
		if (s[i].tag == tag && s[i].expires - now - 1 < c->head.lease)
			return 1;
	return 0;
}

// prove gives a source a place, and says how long that of another would have held it, in jiffies.
static __always_inline __u32 prove(struct cookie_memory *c, __u64 hi, __u64 lo, __u32 class,
				   __u32 now)
{
	__u32 tag, l = line(c, hi, lo, class, &tag);
	struct cookie_source *s = c->sources[l];
	__u8 tags = bit(tag);
	__u64 best = 1ULL << 62;
	struct {
		__u16 no, at;
		__u32 least;
	} WORDS slots;

	for (int i = 0; i < COOKIE_LINE; i++) {
		__u32 left = s[i].expires - now;

		if (!s[i].tag || left - 1 >= c->head.lease)
			left = 0;
		else
			tags |= bit(s[i].tag);
		// The source's own place is before all others.
		__u64 worth = s[i].tag == tag ? 0 : (__u64)left + 1;

		best = least_of(worth * COOKIE_LINE + i, best);
	}
	__u32 at = forget(&slots.at, best & (COOKIE_LINE - 1)) & (COOKIE_LINE - 1);
	__u64 taken = best / COOKIE_LINE;
	__u32 least = forget_word(&slots.least, taken ? taken - 1 : 0);

	if (least)
		__sync_fetch_and_add(&c->head.evicted, 1);
	s[at].expires = now + c->head.lease - c->head.second;
	s[at].tag = tag;
	c->tags[l] = tags; // of sources whose lease has not ended
	return least;
}

#endif
