// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Whether the packet that an ICMP error quotes has left on a connection that is known (RFC 792, RFC
// 4443 section 2.4 (c)). Package flow takes the quote4_* and quote6_* functions out of this object.
// They are global: of static ones the compiler would assume that they get what the entry programs
// hand them. They only read: an error is as easily forged as any packet (RFC 5927).
#include "flow.h"

// What stands in front of the quoted packet: type, code, checksum, and four bytes more.
#define ICMP_HEADER 8
// Of its transport header RFC 792 promises so much: the ports, or the identifier of an echo.
#define QUOTED_BYTES 8

// look_up asks for the connection of a quoted packet, whose transport header begins at off.
static __always_inline int look_up(const struct frame *f, struct key *k, __u32 off, __u32 left,
				   int six, int hook)
{
	__u8 b[QUOTED_BYTES];
	__u32 ports, zero = 0;

	if (left < sizeof(b) || pull(f, off, b, sizeof(b), hook))
		return 0;
	switch (k->proto) {
	case 6:
	case 17:
		ports = (__u32)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
		break;
	default:
		if (k->proto != (six ? 58 : 1) || b[0] != (six ? 128 : 8) || b[1])
			return 0;
		ports = b[4] << 8 | b[5];
	}
	struct flows *m = bpf_map_lookup_elem(&flows, &zero);

	return m ? flow_known(m, flow_hash(&m->head, k, six, ports)) : 0;
}

// quote4 looks into the error that begins at off and has left bytes. It came to the address dst,
// which has to be the source of the quoted packet: errors go to the sender of what they quote.
static __always_inline int quote4(const struct frame *f, __u32 off, __u32 left, __u32 dst, int hook)
{
	WORDS struct ipv4 ip;
	struct key k = {};

	if (left < ICMP_HEADER + sizeof(ip) || pull(f, off + ICMP_HEADER, &ip, sizeof(ip), hook))
		return 0;
	__u32 header = (ip.version_ihl & 0xf) * 4;

	left -= ICMP_HEADER;
	if (ip.version_ihl >> 4 != 4 || header < sizeof(ip) || header > left)
		return 0;
	if (bpf_ntohs(ip.frag_off) & 0x1fff || bpf_ntohl(ip.src) != dst)
		return 0;
	k.src_hi = dst;
	k.dst_hi = bpf_ntohl(ip.dst);
	k.proto = ip.proto;
	return look_up(f, &k, off + ICMP_HEADER + header, left - header, 0, hook);
}

static __always_inline int quote6(const struct frame *f, __u32 off, __u32 left, __u64 dst_hi,
				  __u64 dst_lo, int hook)
{
	WORDS struct ipv6 ip;
	WORDS struct extension ext;
	struct key k = {};

	if (left < ICMP_HEADER + sizeof(ip) || pull(f, off + ICMP_HEADER, &ip, sizeof(ip), hook))
		return 0;
	k.src_hi = bpf_be64_to_cpu(ip.src_hi);
	k.src_lo = bpf_be64_to_cpu(ip.src_lo);
	if (bpf_ntohl(ip.flow) >> 28 != 6 || k.src_hi != dst_hi || k.src_lo != dst_lo)
		return 0;
	k.dst_hi = bpf_be64_to_cpu(ip.dst_hi);
	k.dst_lo = bpf_be64_to_cpu(ip.dst_lo);

	__u8 next = ip.next;

	off += ICMP_HEADER + sizeof(ip);
	left -= ICMP_HEADER + sizeof(ip);
	for (int i = 0; i <= MAX_EXT; i++) {
		off = forget(&k.off, off);
		left = forget(&k.left, left);
		if (!is_ext(next))
			break;
		if (i == MAX_EXT || left < sizeof(ext) || pull(f, off, &ext, sizeof(ext), hook))
			return 0;
		__u32 header = 8;
		if (next == 51)
			header = (ext.len + 2) * 4;
		else if (next != 44)
			header = (ext.len + 1) * 8;
		else if (bpf_ntohs(ext.frag) & 0xfff8)
			return 0;
		if (header > left)
			return 0;
		off += header;
		left -= header;
		next = ext.next;
	}
	k.proto = next;
	return look_up(f, &k, off, left, 1, hook);
}

// One instance for each family and kind of frame, and entry programs only so that the object holds
// whole programs.
#define QUOTE(section, name, context, hook)                                                        \
	__noinline int quote4_##name(struct context *ctx, __u32 off, __u32 left, __u32 dst)        \
	{                                                                                          \
		struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};   \
                                                                                                   \
		return quote4(&f, off, left, dst, hook);                                           \
	}                                                                                          \
	__noinline int quote6_##name(struct context *ctx, __u32 off, __u32 left, __u64 dst_hi,     \
				     __u64 dst_lo)                                                 \
	{                                                                                          \
		struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};   \
                                                                                                   \
		return quote6(&f, off, left, dst_hi, dst_lo, hook);                                \
	}                                                                                          \
	SEC(section)                                                                               \
	int entry_##name(struct context *ctx)                                                      \
	{                                                                                          \
		__u32 n = bpf_get_prandom_u32();                                                   \
                                                                                                   \
		return quote4_##name(ctx, n, n, n) + quote6_##name(ctx, n, n, n, n);               \
	}

QUOTE("xdp", xdp, xdp_md, HOOK_XDP)
QUOTE("xdp.frags", xdp_frags, xdp_md, HOOK_XDP_FRAGS)
QUOTE("tc", tcx, __sk_buff, HOOK_TCX)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
