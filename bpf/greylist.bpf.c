// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a greylist does to a packet. The packet goes on if its client has sent an earlier one to the
// same rule, long enough ago. Package greylist takes the function out of this object.
#include "meter.h"

// The memory is a head and lines of 64 bytes. A client's hash names its line. The first word of a
// line is when it was swept last; each of the others is a client: a tag of its hash above whether
// it has come again and the lower bits of a time. A client that has not come again has the time of
// its first packet, others that of their last. Zero is an empty place.
//
// All times are in ticks of 2^24 ns. Those of clients come around after 137 s. A line that is
// visited is swept of what is older than SPAN if that was not done for SWEPT. So no client that a
// visit finds is older than SPAN + SWEPT + SPAN, and its age is what it seems. A CPU may find what
// another one has written at a time that it has not read yet: ages count to BEHIND later.
#define PLACES 16 // words of a line
#define TIME_BITS 13
#define TIME_MASK ((1 << TIME_BITS) - 1)
#define AGAIN (1 << TIME_BITS)
#define TAG_SHIFT (TIME_BITS + 1)
#define TAG_BITS (32 - TAG_SHIFT)
#define LINE_BITS 20 // of a hash, the upper ones: the most that name a line
#define TICK_SHIFT 24

#define SPAN 3584 // 60.1 s, above the longest time of a rule
#define SWEPT 960 // 16.1 s
#define BEHIND 16 // 268 ms: by how much clocks of CPUs may differ

_Static_assert(SPAN + SWEPT + SPAN + BEHIND < 1 << TIME_BITS, "ages are what they seem");

#define GREYLIST_METERS 64
#define GREYLIST_ROWS 16 // CPUs share them

struct greylist_count {
	__u64 evicted; // clients that gave way while they might have come again
	__u64 unused[7];
};

struct greylist_head {
	__u64 starts[3], last; // of the hash of a client, as package limit has it
	__u64 factors[11];     //
	__u64 clock;	       // jiffies for tests, 0 for those of the kernel
	__u32 second;	       // in jiffies
	__u32 jiffy;	       // in ns
	__u64 unused[7];
	struct meter meters[GREYLIST_METERS]; // a rule has the one of its number
	struct greylist_count rows[GREYLIST_ROWS];
};

_Static_assert(sizeof(struct greylist_head) % 64 == 0, "lines lie in cache lines");

struct greylist_memory {
	struct greylist_head head;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct greylist_memory);
} greylist SEC(".maps");

// greylist_shift leaves the number of its line of a hash. Package greylist replaces the number when
// it knows how large the memory is: so verifiers see a constant.
static __always_inline __u64 greylist_shift(void)
{
	__u64 n;

	asm("%0 = 0x67726579" : "=r"(n));
	return n;
}

// age_of returns the age of a time in ticks, plus BEHIND.
static __always_inline __u32 age_of(__u32 word, __u32 now)
{
	return (now + BEHIND - word) & TIME_MASK;
}

// sweep empties the places of clients that no rule remembers any more.
static __always_inline void sweep(__u32 *line, __u32 now)
{
	__u32 since = now - line[0];

	for (int i = 1; i < PLACES; i++)
		if (since >= SPAN + SWEPT || age_of(line[i], now) > SPAN + BEHIND)
			line[i] = 0;
	line[0] = now;
}

// What becomes of a packet.
enum greylist_result { GREYLIST_GOES_ON, GREYLIST_DROPPED };

// put gives a client the place of the one that has not been heard of for the longest time.
static __always_inline void put(struct greylist_memory *m, __u32 *line, __u32 word, __u32 now,
				__u32 within)
{
	__s64 most = 0; // an age, one above all of what is empty, and its place

	for (int i = 1; i < PLACES; i++) {
		__u64 empty = ((__u64)line[i] - 1) >> 63;
		__s64 age = (age_of(line[i], now) | empty << TIME_BITS) * PLACES + i;
		__s64 less = most - age;

		most -= less & less >> 63; // no CPU would foresee which is the greatest
	}
	if (most / PLACES <= within + BEHIND)
		m->head.rows[bpf_get_smp_processor_id() & (GREYLIST_ROWS - 1)].evicted++;
	line[most & (PLACES - 1)] = word;
}

// greylist_judge judges a packet of a client with a hash. window is after how many ticks the client
// may come again, and above 16 bits within how many.
static __noinline int greylist_judge(__u64 hash, __u32 meter, __u64 rate, __u32 window)
{
	__u32 zero = 0, after = window & 0xffff, within = window >> 16;
	struct greylist_memory *m = bpf_map_lookup_elem(&greylist, &zero);

	if (!m)
		return GREYLIST_GOES_ON;
	__u64 jiffies = m->head.clock ? m->head.clock : bpf_jiffies64();
	__u32 now = jiffies * m->head.jiffy >> TICK_SHIFT;
	__u32 *line = (void *)m + sizeof(m->head) +
		      (hash >> greylist_shift()) * (PLACES * sizeof(*line));
	__u32 tag = hash >> (64 - LINE_BITS - TAG_BITS) << TAG_SHIFT;
	tag = tag ? tag : 1 << TAG_SHIFT; // what is empty has no tag
	int stranger = above(m->head.second, &m->head.meters[meter & (GREYLIST_METERS - 1)], rate,
			     jiffies) ?
			       GREYLIST_DROPPED :
			       GREYLIST_GOES_ON;

	if (now - line[0] + BEHIND >= SWEPT + BEHIND)
		sweep(line, now);
	for (int i = 1; i < PLACES; i++) {
		__u32 word = line[i], age = age_of(word, now);

		if ((word ^ tag) >> TAG_SHIFT)
			continue;
		if (age > within + BEHIND) { // as one that was never there
			line[i] = tag | (now & TIME_MASK);
			return stranger;
		}
		if (!(word & AGAIN) && age < after + BEHIND) // its first time stays
			return stranger;
		word = tag | AGAIN | (now & TIME_MASK);
		if (line[i] != word)
			line[i] = word;
		return GREYLIST_GOES_ON;
	}
	put(m, line, tag | (now & TIME_MASK), now, within);
	return stranger;
}

// This is here only so that the object holds a whole program.
SEC("tc")
int entry_greylist(struct __sk_buff *ctx)
{
	return greylist_judge((__u64)bpf_get_prandom_u32() << 32, bpf_get_prandom_u32(),
			      bpf_get_prandom_u32(), bpf_get_prandom_u32());
}

const enum greylist_result *unused_greylist_result __attribute__((unused));

char LICENSE[] SEC("license") = "Dual BSD/GPL";
