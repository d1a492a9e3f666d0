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
	__u32 worst = KEEPS << 8, at = FLOW_BUCKET;

	for (int i = 0; i < FLOW_BUCKET; i++) {
		__u64 word = bucket[i].word;

		if (word >> FLOW_LOW == tag && word & FLOW_STATE &&
		    bucket[i].expires - now - 1 < m->head.lease[word & FLOW_STATE])
			return FLOW_BUCKET + i;
	}
	__u32 least = 0xffffffff;
	for (int i = 0; i < FLOW_BUCKET; i++) {
		__u32 r = rank(&m->head, &bucket[i], now);
		__u32 left = r ? bucket[i].expires - now : 0;

		if (r < worst || (r == worst && left < least)) {
			worst = r;
			least = left;
			at = i;
		}
	}
	if (worst >= KEEPS || at >= FLOW_BUCKET) {
		__sync_fetch_and_add(&m->head.refused, 1);
		return -1;
	}
	if (worst)
		__sync_fetch_and_add(&m->head.taken, 1);
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
	__u8 flags = k->tcp_flags;
	__u32 proof = 0, state;

	if (ctx->mark == ANSWER_MARK && ctx->ingress_ifindex == ctx->ifindex)
		return TCX_NEXT;

	switch (transport) {
	case TCP:
		break;
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
	if (at < 0)
		return TCX_NEXT;
	struct flow *f = &m->places[hash >> (64 - FLOW_LOW)][at & (FLOW_BUCKET - 1)];
	int known = at >= FLOW_BUCKET;
	state = known ? f->word & (FLOW_STATE | FLOW_FIN_IN | FLOW_FIN_OUT) : FLOW_NONE;
	if (transport == UDP) {
		if (!known)
			state = FLOW_ONE_WAY;
	} else if (transport == ICMP) {
		state = FLOW_ECHO;
	} else if (flags & RST) {
		// A second SYN has the kernel reset what nobody has proven: that opens nothing.
		if (!known || (state & FLOW_STATE) == FLOW_ANSWERED)
			return TCX_NEXT;
		state = FLOW_RESET;
	} else if (flags & SYN && flags & ACK) {
		__be32 seq;

		if ((state & FLOW_STATE) == FLOW_OPEN)
			return TCX_NEXT; // said again
		if (bpf_skb_load_bytes(ctx, k->off + 4, &seq, sizeof(seq)))
			return TCX_NEXT;
		state = FLOW_ANSWERED;
		proof = bpf_ntohl(seq) + 1;
	} else if (flags & SYN) {
		state = FLOW_OPENING;
	} else {
		switch (state & FLOW_STATE) {
		case FLOW_ANSWERED: // data with the SYN-ACK
			return TCX_NEXT;
		case FLOW_CLOSING:
			break;
		case FLOW_OPEN:
			if (flags & FIN)
				state |= FLOW_FIN_OUT;
			if (state & FLOW_FIN_OUT && state & FLOW_FIN_IN)
				state = FLOW_CLOSING;
			break;
		default:
			state = FLOW_OPEN | (flags & FIN ? FLOW_FIN_OUT : 0);
		}
	}
	put(m, f, tag, state, proof, now);
	show(m, hash >> (64 - FLOW_LOW), tag);
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
