// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Whether what leaves answers the other side of its connection. Package flow takes the functions
// out of this object. They are global: of static ones the compiler would assume that they get what
// the entry program hands them.
#include "flow.h"

// States of a socket of TCP (include/net/tcp_states.h) whose other side has acknowledged what left,
// or has shown a cookie of TCP Fast Open (RFC 7413).
#define HEARD (1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11)

#define SOCK_STREAM 1 // include/linux/net.h

// known_state is the state of the connection of a hash, FLOW_NONE if it is not known.
static __always_inline __u32 known_state(struct flows *m, __u64 hash)
{
	__u64 tag = hash << FLOW_LOW >> FLOW_LOW;
	__u32 now = flow_now(&m->head);
	const struct flow *bucket = flow_bucket(m, hash);

	if (!(*flow_present(m, hash) & 1 << (tag & 7)))
		return FLOW_NONE;
	for (int i = 0; i < FLOW_BUCKET; i++) {
		const struct flow *f = &bucket[i];
		__u64 word = f->word;
		__u32 state = word & FLOW_STATE;

		if (word >> FLOW_LOW == tag && state && f->expires - now - 1 < m->head.lease[state])
			return state;
	}
	return FLOW_NONE;
}

// answers_tcp says whether the other side has acknowledged what this one has sent. If the memory
// does not know a connection of this machine, the kernel's socket answers. That costs nothing: the
// packet carries its socket.
__noinline int answers_tcp(struct __sk_buff *ctx, __u64 hash)
{
	__u32 zero = 0, state;
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);
	struct bpf_sock *sk;

	if (!m)
		return 0;
	state = known_state(m, hash);
	if (state == FLOW_OPEN || state == FLOW_CLOSING)
		return 1;
	if (m->head.clock || ctx->ingress_ifindex) // in tests no connection is older
		return 0;
	sk = ctx->sk;
	if (!sk)
		return 0;
	sk = bpf_sk_fullsock(sk);
	// Once it is connected a raw socket has the state, and one of TCP's number the protocol, too.
	if (!sk || sk->type != SOCK_STREAM || sk->protocol != 6)
		return 0;
	return HEARD >> (sk->state & 31) & 1;
}

// answers_udp says whether something of the connection has come from the other side.
__noinline int answers_udp(__u64 hash)
{
	__u32 zero = 0, state;
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);

	if (!m)
		return 0;
	state = known_state(m, hash);
	return state == FLOW_TWO_WAY || state == FLOW_STRANGER;
}

SEC("tc")
int entry(struct __sk_buff *ctx)
{
	return answers_tcp(ctx, ctx->len) + answers_udp(ctx->len);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
