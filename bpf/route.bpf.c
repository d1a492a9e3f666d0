// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The way back to the source of a packet (RFC 3704), by the kernel's own routes. A lookup is made
// as the kernel makes it for rp_filter: of the source as destination, as if this machine sent it.
#include <linux/if_ether.h>
#include "parse.h"

#define AF_INET 2
#define AF_INET6 10
#define VLANS 4096
#define WAYS 8
#define ABSENT 255 // neither so nor not so, package field

// The interfaces at which the stack receives packets of the policy's device.
struct route_ways {
	__u32 from;           // the interface that a lookup is made for: it is lo, or of a VRF
	__u32 own;            // the interface of the policy
	__u32 untagged[WAYS]; // interfaces that receive untagged frames; 0 ends the list
	__u32 tagged[VLANS];  // by VLAN id: the interface, 0 without one
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route_ways);
} ways SEC(".maps");

// What a lookup found, where that is no interface.
enum found { NOWHERE = 0, ENCAPSULATED = -1, ON_LINK = -2, UNANSWERED = -3 };

static __always_inline const struct route_ways *all_ways(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ways, &zero);
}

// lookup gives the interface of a route. That the kernel knows no neighbour there (a route does not
// need one) comes with the interface. So does at tc that the packet is longer than the interface
// takes: nobody sends it there.
static __always_inline int lookup(void *ctx, struct bpf_fib_lookup *p)
{
	const struct route_ways *w = all_ways();
	long rc;

	if (!w)
		return UNANSWERED;
	p->ifindex = w->from;
	rc = bpf_fib_lookup(ctx, p, sizeof(*p), 0);
	if (rc == BPF_FIB_LKUP_RET_FWD_DISABLED) {
		p->ifindex = w->own;
		rc = bpf_fib_lookup(ctx, p, sizeof(*p), 0);
	}
	if (rc == BPF_FIB_LKUP_RET_SUCCESS || rc == BPF_FIB_LKUP_RET_NO_NEIGH ||
	    rc == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return p->ifindex;
	if (rc == BPF_FIB_LKUP_RET_UNSUPP_LWT)
		return ENCAPSULATED;
	if (rc < 0 || rc == BPF_FIB_LKUP_RET_FWD_DISABLED)
		return UNANSWERED;
	return NOWHERE;
}

// find4 asks for an IPv4 source. One that has no address yet asks everybody on its link. The kernel
// takes no packet from this network, the loopback's, groups and the broadcast, whatever its default
// route is.
static __always_inline int find4(void *ctx, __u32 src, __u32 dst)
{
	struct bpf_fib_lookup p = {.family = AF_INET};

	if (!src && (dst == 0xffffffff || dst >> 8 == 0xe00000))
		return ON_LINK;
	if (!(src >> 24) || src >> 24 == 127 || src >> 28 == 0xe || src == 0xffffffff)
		return NOWHERE;
	p.ipv4_dst = bpf_htonl(src);
	p.ipv4_src = bpf_htonl(dst);
	return lookup(ctx, &p);
}

// find6 asks for an IPv6 source. One of the link is on it, and one that has no address yet asks a
// group. Nobody is at ::, ::1, a group and, on a wire, an IPv4-mapped address.
static __always_inline int find6(void *ctx, __u64 src_hi, __u64 src_lo, __u64 dst_hi, __u64 dst_lo)
{
	struct bpf_fib_lookup p = {.family = AF_INET6};
	__be64 src[2] = {bpf_cpu_to_be64(src_hi), bpf_cpu_to_be64(src_lo)};
	__be64 dst[2] = {bpf_cpu_to_be64(dst_hi), bpf_cpu_to_be64(dst_lo)};

	if (src_hi >> 54 == 0x3fa || (!src_hi && !src_lo && dst_hi >> 56 == 0xff))
		return ON_LINK;
	if (src_hi >> 56 == 0xff || (!src_hi && (src_lo < 2 || src_lo >> 32 == 0xffff)))
		return NOWHERE;
	__builtin_memcpy(p.ipv6_dst, src, sizeof(src));
	// The kernel names no route for a group or an address of the link, whatever the source.
	if (dst_hi >> 56 != 0xff && dst_hi >> 54 != 0x3fa)
		__builtin_memcpy(p.ipv6_src, dst, sizeof(dst));
	return lookup(ctx, &p);
}

#define FUNCTIONS(name, context)                                                                   \
	__noinline int route_find4_##name(struct context *ctx, __u32 src, __u32 dst)               \
	{                                                                                          \
		return find4(ctx, src, dst);                                                       \
	}                                                                                          \
                                                                                                   \
	__noinline int route_find6_##name(struct context *ctx, __u64 src_hi, __u64 src_lo,         \
					  __u64 dst_hi, __u64 dst_lo)                              \
	{                                                                                          \
		return find6(ctx, src_hi, src_lo, dst_hi, dst_lo);                                 \
	}

FUNCTIONS(xdp, xdp_md)
FUNCTIONS(tcx, __sk_buff)

// answer is what was found as two bytes: strict, and loose above it.
static __always_inline __u32 answer(__u8 strict, __u8 loose) { return strict | (__u32)loose << 8; }

// route_tell compares the interface that the lookup found with those that receive frames with these
// VLAN tags.
__noinline int route_tell(__u32 found, __u32 vlan, __u32 inner)
{
	const struct route_ways *w = all_ways();
	__u32 to;

	if (!w || found == (__u32)UNANSWERED)
		return answer(ABSENT, ABSENT);
	if (found == NOWHERE)
		return answer(0, 0);
	if (found == (__u32)ON_LINK)
		return answer(1, 1);
	if (found == (__u32)ENCAPSULATED || inner != NO_VLAN)
		return answer(ABSENT, 1);
	if (vlan != NO_VLAN) {
		to = w->tagged[vlan & (VLANS - 1)];
		return to ? answer(to == found, 1) : answer(ABSENT, 1);
	}
	for (int i = 0; i < WAYS; i++) {
		if (w->untagged[i] == found)
			return answer(1, 1);
	}
	return answer(0, 1);
}

// These are here only so that the object holds whole programs.
SEC("xdp")
int entry_xdp(struct xdp_md *ctx)
{
	return route_find4_xdp(ctx, bpf_get_prandom_u32(), bpf_get_prandom_u32()) +
	       route_find6_xdp(ctx, bpf_get_prandom_u32(), bpf_get_prandom_u32(),
			       bpf_get_prandom_u32(), bpf_get_prandom_u32());
}

SEC("tc")
int entry_tcx(struct __sk_buff *ctx)
{
	return route_find4_tcx(ctx, bpf_get_prandom_u32(), bpf_get_prandom_u32()) +
	       route_find6_tcx(ctx, bpf_get_prandom_u32(), bpf_get_prandom_u32(),
			       bpf_get_prandom_u32(), bpf_get_prandom_u32()) +
	       route_tell(bpf_get_prandom_u32(), bpf_get_prandom_u32(), bpf_get_prandom_u32());
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
