// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What diverts connections. The program that judges packets notes those that a rule diverts, by
// their addresses and ports, and passes them. Where the kernel looks for the socket of a segment
// that belongs to no connection, a second program finds the note, and gives it to the trap. Package
// divert takes the functions and that program out of this object.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "sip.h"

#define DIVERT_LINE 8
#define DIVERT_LINES (1 << 14)

struct divert_head {
	__u64 key[2]; // of SipHash
	__u64 clock;  // jiffies for tests, 0 for those of the kernel
	__u32 second; // in jiffies
	__u32 lease;  // of a note, in jiffies, and a second: see flow.h
	__u64 full;   // packets that found no place, and were dropped
	__u64 given;  // segments that were given to the trap
	__u64 alone;  // segments that were refused, as there was no trap
	__u64 unused;
};

// A place has a tag in its upper half, which is 0 in no note, and below it when the note ends: the
// lower 32 bits of jiffies. It is one word, so that no two CPUs take it for different notes.
struct divert_memory {
	struct divert_head head;
	__u64 places[DIVERT_LINES][DIVERT_LINE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct divert_memory);
} diverted SEC(".maps");

// The sockets of the trap.
enum divert_socket { DIVERT_IPV4, DIVERT_IPV6, DIVERT_SOCKETS };

struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, DIVERT_SOCKETS);
	__type(key, __u32);
	__type(value, __u64);
} trap SEC(".maps");

// What becomes of a packet that a rule diverts.
enum divert_result { DIVERT_FULL, DIVERT_NOTED };

static __always_inline __u64 hash4(const struct divert_head *h, __u32 src, __u32 dst, __u32 ports)
{
	const __u64 words[2] = {(__u64)src << 32 | dst, ports};

	return sip_hash(h->key, words, 2);
}

static __always_inline __u64 hash6(const struct divert_head *h, __u64 src_hi, __u64 src_lo,
				   __u64 dst_hi, __u64 dst_lo, __u32 ports)
{
	const __u64 words[5] = {src_hi, src_lo, dst_hi, dst_lo, ports};

	return sip_hash(h->key, words, 5);
}

static __always_inline __u64 tag_of(__u64 hash) { return hash >> 32 << 32 | 1ULL << 63; }

static __always_inline __u64 *line_of(struct divert_memory *m, __u64 hash)
{
	return m->places[hash & (DIVERT_LINES - 1)];
}

static __always_inline __u32 clock_of(const struct divert_head *h)
{
	return h->clock ? h->clock : bpf_jiffies64();
}

static __always_inline int is_live(const struct divert_head *h, __u64 place, __u32 now)
{
	return place && (__u32)place - now - 1 < h->lease;
}

// put writes a place that is as it was read.
static __always_inline int put(__u64 *place, __u64 was, __u64 is)
{
	return was == is || __sync_val_compare_and_swap(place, was, is) == was;
}

// note gives a packet a place: its own, or one that is free. No note loses its place before it
// ends: its connection would go to who listens there.
static __always_inline int note(struct divert_memory *m, __u64 hash)
{
	__u64 tag = tag_of(hash), *line = line_of(m, hash);
	__u32 now = clock_of(&m->head);
	__u64 is = tag | (__u32)(now + m->head.lease - m->head.second);

	for (int i = 0; i < DIVERT_LINE; i++) {
		__u64 was = *(volatile __u64 *)&line[i];

		if (tag_of(was) == tag && was && put(&line[i], was, is))
			return DIVERT_NOTED;
	}
	for (int i = 0; i < DIVERT_LINE; i++) {
		__u64 was = *(volatile __u64 *)&line[i];

		if (!is_live(&m->head, was, now) && put(&line[i], was, is))
			return DIVERT_NOTED;
	}
	__sync_fetch_and_add(&m->head.full, 1);
	return DIVERT_FULL;
}

static __noinline int divert_ipv4(__u64 src, __u64 dst, __u64 ports)
{
	__u32 zero = 0;
	struct divert_memory *m = bpf_map_lookup_elem(&diverted, &zero);

	return m ? note(m, hash4(&m->head, src, dst, ports)) : DIVERT_FULL;
}

static __noinline int divert_ipv6(__u64 src_hi, __u64 src_lo, __u64 dst_hi, __u64 dst_lo,
				  __u64 ports)
{
	__u32 zero = 0;
	struct divert_memory *m = bpf_map_lookup_elem(&diverted, &zero);

	return m ? note(m, hash6(&m->head, src_hi, src_lo, dst_hi, dst_lo, ports)) : DIVERT_FULL;
}

// This is here only so that the object holds a whole program.
SEC("xdp")
int entry(struct xdp_md *ctx)
{
	__u64 n = ctx->ingress_ifindex;

	return divert_ipv4(n, n, n) + divert_ipv6(n, n, n, n, n);
}

static __always_inline int is_noted(struct divert_memory *m, __u64 hash)
{
	__u64 tag = tag_of(hash), *line = line_of(m, hash);
	__u32 now = clock_of(&m->head);

	for (int i = 0; i < DIVERT_LINE; i++) {
		__u64 place = *(volatile __u64 *)&line[i];

		if (tag_of(place) == tag && is_live(&m->head, place, now))
			return 1;
	}
	return 0;
}

static __always_inline __u64 upper(__be32 a, __be32 b)
{
	return (__u64)bpf_ntohl(a) << 32 | bpf_ntohl(b);
}

#define TCP_PROTOCOL 6
#define FAMILY_IPV4 2 // AF_INET

// lookup is asked by the kernel for the socket of a segment that belongs to no connection.
SEC("sk_lookup")
int lookup(struct bpf_sk_lookup *ctx)
{
	__u32 zero = 0, at = DIVERT_IPV4;
	struct divert_memory *m = bpf_map_lookup_elem(&diverted, &zero);
	__u64 hash;

	if (!m || ctx->protocol != TCP_PROTOCOL)
		return SK_PASS;

	__u32 ports = (__u32)bpf_ntohs(ctx->remote_port) << 16 | ctx->local_port;

	if (ctx->family == FAMILY_IPV4) {
		hash = hash4(&m->head, bpf_ntohl(ctx->remote_ip4), bpf_ntohl(ctx->local_ip4), ports);
	} else {
		at = DIVERT_IPV6;
		hash = hash6(&m->head, upper(ctx->remote_ip6[0], ctx->remote_ip6[1]),
			     upper(ctx->remote_ip6[2], ctx->remote_ip6[3]),
			     upper(ctx->local_ip6[0], ctx->local_ip6[1]),
			     upper(ctx->local_ip6[2], ctx->local_ip6[3]), ports);
	}
	if (!is_noted(m, hash))
		return SK_PASS;

	struct bpf_sock *sk = bpf_map_lookup_elem(&trap, &at);
	long failed = -1;

	if (sk) {
		failed = bpf_sk_assign(ctx, sk, 0);
		bpf_sk_release(sk);
	}
	__sync_fetch_and_add(failed ? &m->head.alone : &m->head.given, 1);
	return failed ? SK_DROP : SK_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const enum divert_result *unused_divert_result __attribute__((unused));
const enum divert_socket *unused_divert_socket __attribute__((unused));
