// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What comes in over UDP of no connection that is known: who began, and whether it answers what a
// group has been asked. Package flow takes the functions out of this object. They are global: of
// static ones the compiler would assume that they get what the entry program hands them.
#include "places.h"

// note_stranger notes that the other side began, of which a packet has passed: so what this side
// sends is an answer, which proves nothing of who is there. It says whether that is new, or was
// noted a second ago.
__noinline int note_stranger(__u64 hash)
{
	__u32 zero = 0;
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);

	if (!m)
		return 0;
	__u32 now = flow_now(&m->head);
	__u32 at = find_place(m, hash, now);
	const struct flow *f = &flow_bucket(m, hash)[at & (FLOW_BUCKET - 1)];
	__u32 expires = f->expires;
	int known = at != NOWHERE && at >= FLOW_BUCKET;

	if (known && (f->word & FLOW_STATE) != FLOW_STRANGER)
		return 0; // this side has begun in between
	place(m, hash, at, FLOW_STRANGER, 0, now);
	return !known || f->expires != expires;
}

// note_served notes a port to which somebody has come.
__noinline int note_served(__u32 port)
{
	__u32 zero = 0;
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);

	if (!m)
		return 0;
	if (!m->head.lease[FLOW_SERVED]) // in a memory of an earlier levee
		m->head.lease[FLOW_SERVED] = m->head.lease[FLOW_STRANGER];
	__u32 now = flow_now(&m->head);
	__u64 hash = flow_port_hash(&m->head, port);

	place(m, hash, find_place(m, hash, now), FLOW_SERVED, 0, now);
	return 0;
}

// on_link says whether a source may be of the link of an address, as far as addresses tell: most
// links are no larger, and no router lets strangers be of private networks (RFC 1918).
static __always_inline int on_link(__u64 hi, __u64 src_hi, int six)
{
	if (six)
		return src_hi == hi || src_hi >> 54 == 0xfe80 >> 6;

	__u32 top = hi >> 16;
	int private = top >> 8 == 10 || top >> 4 == 0xac1 || top == 0xc0a8 || top == 0xa9fe;

	return private ? src_hi >> 16 == top : src_hi >> 8 == hi >> 8;
}

// answers_group says whether a packet to a port answers what has been asked of a group: from there
// by a port, to which somebody of the link may answer, or of the group that it comes to itself.
__noinline int answers_group(__u64 hi, __u64 lo, __u64 src_hi, __u32 port, __u32 six)
{
	__u32 zero = 0;
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);
	int multicast = six ? hi >> 56 == 0xff : hi >> 28 == 0xe;

	if (!m || (!multicast && !on_link(hi, src_hi, six)))
		return 0;
	return flow_known(m, flow_group_hash(&m->head, hi, lo, six, port));
}

SEC("xdp")
int entry(struct xdp_md *ctx)
{
	__u32 n = ctx->ingress_ifindex;

	return note_stranger(n) + note_served(n) + answers_group(n, n, n, n, n);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
