// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The memory of datagrams that arrive in fragments. Later fragments share the verdict of the first.
// If the first has passed, the memory keeps which parts have passed, and a fragment that overlaps
// them is refused (RFC 5722, RFC 8200 section 4.5). Fragments that arrive before their first one
// pass within a budget. Package fragment takes the functions out of this object.
#include "parse.h"
#include "sip.h"

#define FRAGMENT_BUCKET 8
#define FRAGMENT_BUCKETS (1 << 11)
#define FRAGMENT_PARTS 8

// A datagram has a fragment for each 512 bytes that have passed, and eight more. A rate that only
// first fragments can be measured by says little where 8 bytes are enough for each of the others.
#define FRAGMENT_BYTES 512
#define FRAGMENT_MORE 8

struct fragment_head {
	__u64 key[2]; // of SipHash
	__u64 clock;  // jiffies for tests, 0 for those of the kernel
	__u32 lease;  // of a datagram, in jiffies, and a second: see flow.h
	__u32 second; // in jiffies
	__u64 cost;  // of a fragment ahead of its first, in jiffies << 16
	__u64 until; // the budget of these is spent, in jiffies << 16
	__u64 ahead;   // fragments that passed ahead of their first
	__u64 refused; // that would have, beyond the budget, or of more parts than a datagram has
	__u64 evicted; // datagrams that lost their place before their lease had ended
};

enum fragment_state {
	FRAGMENT_NONE,
	FRAGMENT_DROPPED, // the first has been dropped
	FRAGMENT_SPOILED, // parts overlapped: nothing passes any more
	FRAGMENT_AHEAD,	  // the first has not come yet
	FRAGMENT_PASSED,  // the first has passed
};

struct fragment_part {
	__u16 from, to; // in bytes; none where both are 0
};

struct fragment_datagram {
	__u64 tag;
	__u32 expires; // jiffies, the lower 32 bits
	__u16 state;
	__u16 total; // bytes in all, once the last fragment has passed
	__u16 ahead; // fragments of it that passed ahead of the first
	__s16 spare; // bytes above FRAGMENT_BYTES for each fragment, in eights
	volatile __u8 before, behind, empty, meets; // see add
	struct fragment_part parts[FRAGMENT_PARTS];
};

// Places that loops find are noted in memory, under the lock: the verifier would follow all that
// comes after once for each place that it knows.
struct fragment_bucket {
	__u32 lock;
	volatile __u32 at;
	struct fragment_datagram datagrams[FRAGMENT_BUCKET];
};

struct fragment_memory {
	struct fragment_head head;
	struct fragment_bucket buckets[FRAGMENT_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fragment_memory);
} fragments SEC(".maps");

// What becomes of a fragment.
enum fragment_result {
	FRAGMENT_ORPHAN, // its first has not passed
	FRAGMENT_PASS,
	FRAGMENT_OVERLAPS,
	FRAGMENT_TINY,
};

static __always_inline __u64 hash(const struct fragment_head *h, const struct key *k, int six)
{
	__u64 words[5] = {k->src_hi, k->dst_hi, (__u64)k->datagram << 16 | six << 8};

	if (six) {
		words[3] = k->src_lo;
		words[4] = k->dst_lo;
		return sip_hash(h->key, words, 5);
	}
	words[2] |= k->proto; // RFC 791 section 3.2
	return sip_hash(h->key, words, 3);
}

// take_lock returns 1 if it has locked the bucket. Programs of one hook do not interrupt each other
// on a CPU, so the holder of a lock keeps running and releases it soon.
static __always_inline int take_lock(struct fragment_bucket *b)
{
	for (int i = 0; i < 256; i++)
		if (!__sync_lock_test_and_set(&b->lock, 1))
			return 1;
	return 0;
}

static __always_inline void release_lock(struct fragment_bucket *b)
{
	(void)__sync_lock_test_and_set(&b->lock, 0);
}

// within keeps an index below a power of two where the verifier sees it: clang would move a
// comparison away from where it is used.
static __always_inline __u32 within(__u32 at, __u32 n)
{
	asm volatile("" : "+r"(at));
	return at & (n - 1);
}

// rank orders what may lose its place: 0 goes first.
static __always_inline __u32 rank(const struct fragment_head *h,
				  const struct fragment_datagram *d, __u32 now)
{
	return d->expires - now - 1 >= h->lease ? FRAGMENT_NONE : d->state;
}

// find gives the place of a datagram, 0 if it is not known.
static __always_inline struct fragment_datagram *find(struct fragment_memory *m,
						      struct fragment_bucket *b, __u64 tag,
						      __u32 now)
{
	b->at = FRAGMENT_BUCKET;
	for (int i = 0; i < FRAGMENT_BUCKET; i++) {
		struct fragment_datagram *d = &b->datagrams[i];

		if (d->tag == tag && rank(&m->head, d, now))
			b->at = i;
	}
	__u32 at = b->at;

	return at < FRAGMENT_BUCKET ? &b->datagrams[within(at, FRAGMENT_BUCKET)] : 0;
}

// make returns the place of a new datagram, 0 if there is none. A datagram of a less valuable state
// gives way first, then the oldest of the same state.
static __always_inline struct fragment_datagram *make(struct fragment_memory *m,
						      struct fragment_bucket *b, __u64 tag,
						      __u32 now, __u16 state)
{
	__u32 worst = state + 1, least = 0;

	b->at = FRAGMENT_BUCKET;
	for (int i = 0; i < FRAGMENT_BUCKET; i++) {
		struct fragment_datagram *d = &b->datagrams[i];
		__u32 r = rank(&m->head, d, now), left = d->expires - now;

		if (r < worst || (r == worst && left < least)) {
			worst = r;
			least = left;
			b->at = i;
		}
	}
	__u32 at = b->at;

	if (at >= FRAGMENT_BUCKET)
		return 0;
	if (worst)
		__sync_fetch_and_add(&m->head.evicted, 1);

	struct fragment_datagram *d = &b->datagrams[within(at, FRAGMENT_BUCKET)];

	__builtin_memset(d, 0, sizeof(*d));
	d->tag = tag;
	d->expires = now + m->head.lease - m->head.second;
	d->state = state;
	return d;
}

enum meets { AGAIN = 1, CLASH = 2 };

// spare is what a fragment adds to that of its datagram.
static __always_inline int spare(__u32 from, __u32 to)
{
	return (int)((to - from) >> 3) - FRAGMENT_BYTES / 8;
}

// add notes a part, and says whether it fits: FRAGMENT_ORPHAN if there is no room for it. AGAIN is
// in meets if all of it has passed.
static __always_inline int add(struct fragment_datagram *d, __u32 from, __u32 to, int more)
{
	int gain = spare(from, to);

	d->meets = 0;
	if (d->total && (to > d->total || (!more && to != d->total)))
		return FRAGMENT_OVERLAPS;
	d->before = d->behind = d->empty = FRAGMENT_PARTS;
	for (int i = 0; i < FRAGMENT_PARTS; i++) {
		__u32 f = d->parts[i].from, t = d->parts[i].to;

		if (!t) {
			d->empty = i;
			continue;
		}
		if (from >= f && to <= t)
			d->meets |= AGAIN;
		if ((from < t && f < to) || (!more && t > to))
			d->meets |= CLASH;
		if (t == from)
			d->before = i;
		if (f == to)
			d->behind = i;
	}
	__u32 before = d->before, behind = d->behind, empty = d->empty;

	if (d->meets) // nobody has compared the bytes, also where they should be the same
		return FRAGMENT_OVERLAPS;
	if (before < FRAGMENT_PARTS) {
		struct fragment_part *p = &d->parts[within(before, FRAGMENT_PARTS)];

		from = p->from;
		p->to = 0;
		empty = before;
	}
	if (behind < FRAGMENT_PARTS) {
		struct fragment_part *p = &d->parts[within(behind, FRAGMENT_PARTS)];

		to = p->to;
		p->to = 0;
		empty = behind;
	}
	if (empty >= FRAGMENT_PARTS)
		return FRAGMENT_ORPHAN;
	struct fragment_part *p = &d->parts[within(empty, FRAGMENT_PARTS)];

	p->from = from;
	p->to = to;
	d->spare += gain;
	if (!more)
		d->total = to;
	if (!from && d->total && to == d->total && d->state == FRAGMENT_PASSED)
		d->state = FRAGMENT_NONE; // whole
	return FRAGMENT_PASS;
}

#define BURST 512

// spend takes a fragment from the budget of those that pass ahead of their first.
static __always_inline int spend(struct fragment_head *h, __u64 now)
{
	__u64 at = now << 16, was, is;

	for (int i = 0; i < 16; i++) {
		was = *(volatile __u64 *)&h->until;
		is = was > at ? was : at;
		if (is > at + (BURST - 1) * h->cost)
			return 0;
		if (__sync_val_compare_and_swap(&h->until, was, is + h->cost) == was)
			return 1;
	}
	return 0;
}

static __always_inline __u64 clock_of(const struct fragment_head *h)
{
	return h->clock ? h->clock : bpf_jiffies64();
}

static __always_inline int refuse(struct fragment_memory *m)
{
	__sync_fetch_and_add(&m->head.refused, 1);
	return FRAGMENT_ORPHAN;
}

static __always_inline int later(struct fragment_memory *m, struct fragment_bucket *b,
				 const struct key *k, __u64 tag)
{
	__u64 now = clock_of(&m->head);
	struct fragment_datagram *d = find(m, b, tag, now);
	__u32 from = k->frag & ~7, to = from + k->left, is = d ? d->state : FRAGMENT_NONE;

	if (is == FRAGMENT_DROPPED || is == FRAGMENT_SPOILED)
		return FRAGMENT_ORPHAN;
	if (k->frag & MORE)
		to &= ~7;
	if (d && d->spare + spare(from, to) < -FRAGMENT_MORE * FRAGMENT_BYTES / 8)
		return refuse(m);
	if (is != FRAGMENT_PASSED && !spend(&m->head, now))
		return refuse(m);
	if (!d)
		d = make(m, b, tag, now, FRAGMENT_AHEAD);
	if (!d)
		return refuse(m);
	int fits = add(d, from, to, k->frag & MORE);

	if (fits == FRAGMENT_OVERLAPS) {
		if (!(d->meets & AGAIN))
			d->state = FRAGMENT_SPOILED;
	} else if (fits == FRAGMENT_ORPHAN) {
		return refuse(m);
	} else if (is != FRAGMENT_PASSED) {
		d->ahead++;
		__sync_fetch_and_add(&m->head.ahead, 1);
	}
	return fits;
}

// fragment_later says what becomes of a fragment with an offset, where the rules ask.
static __noinline int fragment_later(struct key *k)
{
	__u32 zero = 0, header = 0;
	struct fragment_memory *m = bpf_map_lookup_elem(&fragments, &zero);
	int six = k->class >= CLASS(1, OTHER, 0);

	if (!m || k->frag & FIRST)
		return FRAGMENT_ORPHAN;
	switch (k->proto) { // what a first fragment has to hold
	case 6:
		header = 20;
		break;
	case 33:
	case 132:
		header = 12;
	}
	if ((k->frag & ~7U) < header || k->left < (k->frag & MORE ? 8 : 1))
		return FRAGMENT_TINY; // RFC 1858 section 3

	__u64 tag = hash(&m->head, k, six);
	struct fragment_bucket *b = &m->buckets[tag & (FRAGMENT_BUCKETS - 1)];

	if (!take_lock(b))
		return FRAGMENT_ORPHAN;
	int out = later(m, b, k, tag);
	release_lock(b);
	return out;
}

static __always_inline int first(struct fragment_memory *m, struct fragment_bucket *b, __u64 tag,
				 __u32 len, int passes)
{
	__u64 now = clock_of(&m->head);
	struct fragment_datagram *d = find(m, b, tag, now);

	if (!d)
		d = make(m, b, tag, now, passes ? FRAGMENT_PASSED : FRAGMENT_DROPPED);
	if (!d)
		return FRAGMENT_PASS;
	if (d->state == FRAGMENT_SPOILED)
		return passes ? FRAGMENT_OVERLAPS : FRAGMENT_PASS;
	if (!passes) {
		if (d->state != FRAGMENT_PASSED)
			d->state = FRAGMENT_DROPPED; // another may pass, beside what has
		return FRAGMENT_PASS;
	}
	__u32 was = d->state;

	d->state = FRAGMENT_PASSED;
	// Of one without a place among the parts nobody could tell what overlaps it.
	if (add(d, 0, len, MORE) != FRAGMENT_PASS) {
		d->state = d->meets & AGAIN ? was : FRAGMENT_SPOILED;
		return FRAGMENT_OVERLAPS;
	}
	if (was == FRAGMENT_AHEAD) // the budget is for those whose first does not come
		__sync_fetch_and_sub(&m->head.until, d->ahead * m->head.cost);
	d->ahead = 0;
	return FRAGMENT_PASS;
}

// fragment_end notes the fate of a first fragment, which may be FRAGMENT_OVERLAPS.
static __noinline int fragment_end(struct key *k, __u32 passes)
{
	__u32 zero = 0;
	struct fragment_memory *m = bpf_map_lookup_elem(&fragments, &zero);
	int six = k->class >= CLASS(1, OTHER, 0);

	if (!m)
		return FRAGMENT_PASS;
	__u64 tag = hash(&m->head, k, six);
	struct fragment_bucket *b = &m->buckets[tag & (FRAGMENT_BUCKETS - 1)];

	if (!take_lock(b))
		return FRAGMENT_PASS;
	int out = first(m, b, tag, k->frag & ~7U, passes);
	release_lock(b);
	return out;
}

SEC("xdp")
int entry(struct xdp_md *ctx)
{
	struct key k = {.proto = ctx->ingress_ifindex};

	return fragment_later(&k) + fragment_end(&k, k.proto);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const enum fragment_result *unused_fragment_result __attribute__((unused));
const enum fragment_state *unused_fragment_state __attribute__((unused));
const enum frag *unused_frag __attribute__((unused));
