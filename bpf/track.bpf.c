// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The program at egress that notes connections. The program at ingress looks them up in the same
// memory. It drops nothing.
#include "answer.h"
#include "places.h"

#define TCX_NEXT -1
#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define ACK 0x10

// Verifiers look at these functions once, not for each way that leads to them: loading takes a
// third of the time.

__noinline int find(__u64 hash, __u32 now)
{
	__u32 zero = 0;
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);

	return m ? find_place(m, hash, now) : NOWHERE;
}

__noinline int store(__u64 hash, __u32 at, __u32 is, __u32 proof, __u32 now)
{
	__u32 zero = 0;
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);

	if (m)
		place(m, hash, at, is, proof, now);
	return TCX_NEXT;
}

static __always_inline __u32 blocks_of(__u32 bytes)
{
	return (bytes + (1 << FLOW_BLOCK) - 1) >> FLOW_BLOCK;
}

// both are what a connection is, and its proof.
static __always_inline __u64 both(__u32 is, __u32 proof) { return (__u64)proof << 32 | is; }

// cover returns the new proof of a connection, so that acknowledgements of this segment open it.
// Data in front of an older connection's first segment is a retransmission; a segment out of reach
// moves the proof to itself.
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

// leave_tcp returns the new state and proof (see both) of a connection after a segment has left.
// The segment has flags and the sequence numbers from up to, not including, to. is and proof are
// the old state, FLOW_NONE if the connection was not known. What has ended sends nothing but RSTs:
// these renew nothing.
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
		if (flags & FIN)
			is |= FLOW_FIN_OUT;
		if (is & FLOW_FIN_OUT && is & FLOW_FIN_IN)
			return both(FLOW_CLOSING, proof);
		if (!(is & FLOW_RST_IN && flags & SOON)) // it may have left before the RST was read
			is &= FLOW_STATE | FLOW_FIN_IN | FLOW_FIN_OUT;
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

// Whose packets all of a network get, or all that listen to a group.
static __always_inline int is_multicast(const struct key *k, int six)
{
	return six ? k->dst_hi >> 56 == 0xff : k->dst_hi >> 28 == 0xe;
}

static __always_inline int is_group(const struct key *k, int six)
{
	return k->dst_mac >> 40 & 1 || is_multicast(k, six);
}

// ask notes that a port has asked a multicast group, so that answers from any member are known.
// Where the ports are the same, as in multicast DNS (RFC 6762, section 6), they go to the group as
// well.
__noinline int ask(const struct key *k, __u64 now)
{
	__u32 zero = 0;
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);

	if (!m || !k)
		return 0;
	int six = k->class >= CLASS(1, OTHER, 0);
	__u64 hash = flow_group_hash(&m->head, k->src_hi, k->src_lo, six, k->src_port);
	__u64 until = now + m->head.lease[FLOW_GROUP];
	int on_link = six ? (k->dst_hi >> 48 & 0xff0f) == 0xff02 : k->dst_hi >> 8 == 0xe00000;

	if (until - m->head.groups >= m->head.second)
		m->head.groups = until;
	store(hash, find(hash, now), FLOW_GROUP, 0, now);
	if (!on_link || k->src_port != k->dst_port)
		return 0;
	hash = flow_group_hash(&m->head, k->dst_hi, k->dst_lo, six, k->dst_port);
	return store(hash, find(hash, now), FLOW_GROUP, 0, now);
}

// answers says whether what leaves answers somebody, of whom no more is known than that he may have
// begun: where places were lost, it is known to which ports somebody has come. It is so for as long
// as the port answers, since only who judges notes more.
static __always_inline int answers(struct flows *m, const struct key *k, __u64 now)
{
	__u64 hash = flow_port_hash(&m->head, k->src_port);

	if (now >= m->head.crowded || !flow_known(m, hash))
		return 0;
	store(hash, find(hash, now), FLOW_SERVED, 0, now);
	return 1;
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
	__u64 now64 = m->head.clock ? m->head.clock : bpf_jiffies64();
	__u32 now = now64;
	__u32 ports = (__u32)k->src_port << 16 | k->dst_port;
	__u32 proof = 0, is = FLOW_NONE;

	if (is_own(ctx))
		return TCX_NEXT;

	switch (transport) {
	case TCP:
		break;
	case UDP:
		if (is_group(k, six))
			ask(k, now64);
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
	__u32 at = find(hash, now);
	struct flow *f = &flow_bucket(m, hash)[at & (FLOW_BUCKET - 1)];
	if (at != NOWHERE && at >= FLOW_BUCKET) {
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
		if (is & FLOW_FIRST)
			return TCX_NEXT; // it may answer a packet from before the program
		if ((is == FLOW_NONE || is == FLOW_STRANGER) && answers(m, k, now64))
			is = FLOW_STRANGER;
		else if (is == FLOW_NONE)
			is = now64 < m->head.settled ? FLOW_ONE_WAY | FLOW_FIRST : FLOW_ONE_WAY;
		break;
	default:
		is = FLOW_ECHO;
	}
	return store(hash, at, is, proof, now);
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

// The same for the cgroup of a service, where 1 lets a packet go.
SEC("cgroup_skb/egress")
int track_service(struct __sk_buff *ctx)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};
	struct key k = {};

	if (ctx->mark != DROPPED_MARK && !parse_ip(&f, &k, HOOK_TCX))
		track(ctx, &k);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const struct flow *unused_flow __attribute__((unused));
const enum flow_state *unused_flow_state __attribute__((unused));
