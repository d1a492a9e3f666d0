// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The program at egress that notes connections, in the memory in which the program at ingress looks
// them up. It lets everything go.
#include "answer.h"
#include "flow.h"

#define TCX_NEXT -1
#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define ACK 0x10

// Verifiers look at find and track once, not for each way that leads to them: loading takes a third
// of the time.

// find gives the place in its bucket of a connection, and FLOW_BUCKET more if it is known; else the
// place that a new one takes, or -1 if there is none.
__noinline int find(__u64 hash, __u32 now)
{
	__u32 zero = 0;
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);

	if (!m)
		return -1;
	__u64 tag = hash << FLOW_LOW >> FLOW_LOW; // below the bits that name the bucket
	struct flow *bucket = m->places[hash >> (64 - FLOW_LOW)];
	__u64 least = (__u64)KEEPS << 32;
	int at = -1;

	for (int i = 0; i < FLOW_BUCKET; i++) {
		__u64 word = bucket[i].word;

		if (word >> FLOW_LOW == tag && word & FLOW_STATE &&
		    bucket[i].expires - now - 1 < m->head.lease[word & FLOW_STATE])
			return FLOW_BUCKET + i;
	}
	for (int i = 0; i < FLOW_BUCKET; i++) {
		__u64 r = rank(&m->head, &bucket[i], now);
		__u64 worth = r ? r << 32 | (bucket[i].expires - now) : 0;

		if (worth < least) {
			least = worth;
			at = i;
		}
	}
	return at;
}

// put writes a place. A lease is renewed once a second at most.
static __always_inline void put(struct flows *m, struct flow *f, __u64 tag, __u32 state,
				__u32 proof, __u32 now)
{
	__u32 lease = m->head.lease[state & FLOW_STATE] - m->head.second;
	__u64 word = tag << FLOW_LOW | state;

	if (f->word == word && f->proof == proof && lease - (f->expires - now) < m->head.second)
		return;
	f->proof = proof;
	f->expires = now + lease;
	f->word = word;
}

// show makes the place of a tag visible. A bit that another CPU has lost meanwhile is set again by
// the next packet.
static __always_inline void show(struct flows *m, __u32 bucket, __u64 tag)
{
	__u8 bit = 1 << (tag & 7), all = bit;

	if (m->present[bucket] & bit)
		return;
	for (int i = 0; i < FLOW_BUCKET; i++) {
		__u64 word = m->places[bucket][i].word;

		if (word & FLOW_STATE)
			all |= 1 << (word >> FLOW_LOW & 7);
	}
	m->present[bucket] = all;
}

// open_up tells of a connection that is opening, or takes back what was told of one in whose place
// another is now.
static __always_inline void open_up(struct flows *m, __u32 bucket, int opening)
{
	__u64 *word = &m->opening[bucket / 64], bit = 1ULL << bucket % 64;

	if (!(*word & bit)) {
		if (opening)
			__sync_fetch_and_or(word, bit);
		return;
	}
	for (int i = 0; i < FLOW_BUCKET; i++)
		opening |= (m->places[bucket][i].word & FLOW_STATE) == FLOW_OPENING;
	if (!opening)
		__sync_fetch_and_and(word, ~bit);
}

static __always_inline __u32 blocks_of(__u32 bytes)
{
	return (bytes + (1 << FLOW_BLOCK) - 1) >> FLOW_BLOCK;
}

// both are what a connection is, and its proof.
static __always_inline __u64 both(__u32 is, __u32 proof) { return (__u64)proof << 32 | is; }

// cover has acknowledgements of a segment open a connection. In front of what was the first of an
// older one there is what leaves again; what does not fit is where it is now.
static __always_inline __u64 cover(__u32 is, __u32 proof, __u32 from, __u32 to)
{
	__u32 sent = is >> FLOW_SENT, before = proof - from, upto;

	if ((is & FLOW_STATE) == FLOW_OLDER && (__s32)before > 0) {
		sent += blocks_of(before);
		proof = from;
	}
	if ((__s32)(to - proof) <= 0)
		return both(is, proof);
	upto = blocks_of(to - proof);
	if (sent < upto)
		sent = upto;
	if (sent > FLOW_BLOCKS) {
		proof = from;
		sent = blocks_of(to - from);
	}
	return both((is & ((1 << FLOW_SENT) - 1)) | sent << FLOW_SENT, proof);
}

#define NOTHING (~0ULL) // changes
#define SOON 0x100      // with flags: a RST came in less than a second ago

// leave_tcp gives both of a connection once a segment with flags has left, which takes the sequence
// numbers from from to behind to; is and proof are what it was, FLOW_NONE if it was not known. What
// has ended sends nothing but RSTs: these renew nothing.
__noinline __u64 leave_tcp(__u32 is, __u32 proof, __u32 flags, __u32 from, __u32 to)
{
	__u32 state = is & FLOW_STATE;

	if (flags & RST) {
		// A second SYN has the kernel reset what nobody has proven: that opens nothing.
		if (state == FLOW_OPENING || state == FLOW_OPEN || state == FLOW_CLOSING)
			return both(FLOW_RESET, proof);
		return NOTHING;
	}
	if (flags & SYN && !(flags & ACK))
		return both(FLOW_OPENING, proof);
	if (state == FLOW_OPEN) {
		if (flags & SYN)
			return NOTHING; // said again
		if (is & FLOW_RST_IN && flags & SOON)
			return both(is, proof); // it may have left before the RST was read
		is &= FLOW_STATE | FLOW_FIN_IN | FLOW_FIN_OUT;
		if (flags & FIN)
			is |= FLOW_FIN_OUT;
		if (is & FLOW_FIN_OUT && is & FLOW_FIN_IN)
			is = FLOW_CLOSING;
		return both(is, proof);
	}
	if (flags & SYN) {
		if (state == FLOW_ANSWERED && proof == from + 1)
			return both(is, proof); // again; data have left since, by TCP Fast Open (RFC 7413)
		return both(FLOW_ANSWERED, from + 1);
	}
	switch (state) {
	case FLOW_CLOSING:
		return both(is, proof);
	case FLOW_ANSWERED:
		// The answer to a second SYN that is not the next in sequence opens nothing, either.
		if (from == to)
			return NOTHING;
		break;
	case FLOW_OLDER:
		break;
	default:
		is = FLOW_OLDER;
		proof = from;
	}
	if (flags & FIN)
		is |= FLOW_FIN_OUT;
	return from == to ? both(is, proof) : cover(is, proof, from, to);
}

// track notes the connection of a decoded packet.
__noinline int track(struct __sk_buff *ctx, const struct key *k)
{
	__u32 zero = 0;
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);

	if (!m || !k)
		return TCX_NEXT;
	int six = k->class >= CLASS(1, OTHER, 0);
	__u32 transport = k->class ? (k->class - 1) / 2 % TRANSPORTS : OTHER;
	__u32 now = m->head.clock ? m->head.clock : bpf_jiffies64();
	__u32 ports = (__u32)k->src_port << 16 | k->dst_port;
	__u32 proof = 0, is = FLOW_NONE;

	if (ctx->mark == ANSWER_MARK && ctx->ingress_ifindex == ctx->ifindex)
		return TCX_NEXT;

	switch (transport) {
	case TCP:
	case UDP:
		break;
	case ICMP:
		if (k->icmp != (six ? 128 << 8 : 8 << 8))
			return TCX_NEXT;
		ports = k->proof >> 16;
		break;
	default:
		return TCX_NEXT;
	}
	__u64 hash = flow_hash(&m->head, k, six, ports);
	__u64 tag = hash << FLOW_LOW >> FLOW_LOW;
	int at = find(hash, now);
	struct flow *f = &m->places[hash >> (64 - FLOW_LOW)][at & (FLOW_BUCKET - 1)];
	if (at >= FLOW_BUCKET) {
		is = f->word & ((1 << FLOW_LOW) - 1);
		proof = f->proof;
	}
	switch (transport) {
	case TCP: {
		__u32 flags = k->tcp_flags, from = 0, to = 0;
		__u8 b[9]; // from the sequence number to the length of the header

		if (now - proof < m->head.second)
			flags |= SOON;
		if ((is & FLOW_STATE) != FLOW_OPEN) {
			if (bpf_skb_load_bytes(ctx, k->off + 4, b, sizeof(b)))
				return TCX_NEXT;
			from = (__u32)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
			to = from + k->left - (b[8] >> 4) * 4 + !!(flags & FIN);
		}
		__u64 next = leave_tcp(is, proof, flags, from, to);

		if (next == NOTHING)
			return TCX_NEXT;
		is = next;
		proof = next >> 32;
		break;
	}
	case UDP:
		if (is == FLOW_NONE)
			is = FLOW_ONE_WAY;
		break;
	default:
		is = FLOW_ECHO;
	}
	if (at < 0) {
		__sync_fetch_and_add(&m->head.refused, 1);
		return TCX_NEXT;
	}
	if (at < FLOW_BUCKET && rank(&m->head, f, now))
		__sync_fetch_and_add(&m->head.taken, 1);
	put(m, f, tag, is, proof, now);
	show(m, hash >> (64 - FLOW_LOW), tag);
	if (at < FLOW_BUCKET || (is & FLOW_STATE) == FLOW_OPENING)
		open_up(m, hash >> (64 - FLOW_LOW), (is & FLOW_STATE) == FLOW_OPENING);
	return TCX_NEXT;
}

SEC("tc")
int track_ethernet(struct __sk_buff *ctx)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};
	struct key k = {};

	if (parse_ethernet(&f, &k, HOOK_TCX))
		return TCX_NEXT;
	return track(ctx, &k);
}

SEC("tc")
int track_ip(struct __sk_buff *ctx)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};
	struct key k = {};

	if (parse_ip(&f, &k, HOOK_TCX))
		return TCX_NEXT;
	return track(ctx, &k);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const enum flow_state *unused_flow_state __attribute__((unused));
