// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The packet within a tunnel, for rules with `inner`. The generated program calls a function of
// this object for what may be a tunnel, by protocol or destination port, and then judges the key
// that it has filled. Package tunnel takes the functions out of this object. It looks one tunnel
// deep: a tunnel within is a packet of its protocol.
#define INSIDE 1
#include "parse.h"

// What may carry a packet: a protocol, or a port of UDP.
enum tunnel_kind {
	TUNNEL_IPIP = 4,      // RFC 2003
	TUNNEL_IPV6 = 41,     // RFC 4213, RFC 2473
	TUNNEL_GRE = 47,      // RFC 2784, RFC 2890
	TUNNEL_GTPU = 2152,   // 3GPP TS 29.281
	TUNNEL_VXLAN = 4789,  // RFC 7348
	TUNNEL_GENEVE = 6081, // RFC 8926
	TUNNEL_OTV = 8472,    // what Linux had for VXLAN before the RFC, and has by default
};

// What the functions return besides reasons of enum malformed.
enum tunnel_result { TUNNEL_NONE = 255 };

// EtherTypes of what tunnels carry.
enum { MPLS = 0x8847, MPLS_MULTICAST = 0x8848, WCCP = 0x883e };

#define MAX_GTP_EXT 8

// within is the inner packet that the search has found so far: it begins at off in a frame that
// ends at frame.len, and type is its EtherType.
struct within {
	struct frame frame;
	__u32 off;
	__u16 type;
};

// short_of is the result for a tunnel whose header does not end within the packet. There is no
// tunnel then, since no receiver can unpack it; but in a first fragment the header is truncated,
// since the rest may be in later ones.
static __always_inline int short_of(const struct within *w)
{
	return w->frame.cut ? TRUNCATED_L4 : TUNNEL_NONE;
}

// take reads n bytes of the tunnel's header, up to where the packet ends.
static __always_inline int take(const struct within *w, __u32 off, void *to, __u32 n, int hook)
{
	return w->frame.len < off + n || pull(&w->frame, off, to, n, hook);
}

static __always_inline int in_gre(struct within *w, int hook)
{
	WORDS __u8 h[4];

	if (take(w, w->off, h, sizeof(h), hook))
		return short_of(w);
	__u16 flags = h[0] << 8 | h[1];
	if (flags & 0x4007) // routing, and versions that are not 0: Linux drops them too
		return TUNNEL_NONE;
	w->type = h[2] << 8 | h[3];
	w->off += sizeof(h);
	if (flags & 0x8000) // checksum, and two reserved bytes
		w->off += 4;
	if (flags & 0x2000) // key
		w->off += 4;
	if (flags & 0x1000) // sequence number
		w->off += 4;
	if (w->type == WCCP && !flags) { // IPv4 behind a header, or in version 1 without one
		if (take(w, w->off, h, 1, hook))
			return short_of(w);
		if (h[0] >> 4 != 4)
			w->off += 4;
		w->type = 0x0800;
	}
	return WELL_FORMED;
}

static __always_inline int in_gtpu(struct within *w, struct key *k, const __u8 *header, int hook)
{
	WORDS __u8 b[4];

	if (header[0] >> 5 != 1 || header[1] != 255) // version 1, a packet of a user
		return TUNNEL_NONE;
	w->off += 8;
	if (header[0] & 7) {
		if (take(w, w->off, b, sizeof(b), hook))
			return short_of(w);
		__u8 next = header[0] & 4 ? b[3] : 0;

		w->off = forget(&k->off, w->off + sizeof(b));
		for (int i = 0; i <= MAX_GTP_EXT; i++) {
			if (!next)
				break;
			if (i == MAX_GTP_EXT)
				return EXT_HEADERS;
			if (take(w, w->off, b, 1, hook))
				return short_of(w);
			if (!b[0]) // which would be its own length
				return TUNNEL_NONE;
			w->off = forget(&k->off, w->off + b[0] * 4);
			if (take(w, w->off - 1, &next, 1, hook))
				return short_of(w);
		}
	}
	if (take(w, w->off, b, 1, hook))
		return short_of(w);
	if (b[0] >> 4 != 4 && b[0] >> 4 != 6)
		return TUNNEL_NONE;
	w->type = b[0] >> 4 == 4 ? 0x0800 : 0x86dd;
	return WELL_FORMED;
}

static __always_inline int in_udp(struct within *w, struct key *k, __u32 port, int hook)
{
	WORDS __u8 h[16];
	__u32 begin = w->off;

	// The decoder has ended the packet where the datagram ends.
	if (take(w, begin, h, sizeof(h), hook))
		return short_of(w);
	w->off = begin + 8;
	if (port == TUNNEL_GTPU)
		return in_gtpu(w, k, h + 8, hook);
	if (port == TUNNEL_GENEVE) {
		if (h[8] >> 6)
			return TUNNEL_NONE; // another version
		w->type = h[10] << 8 | h[11];
		w->off = begin + sizeof(h) + (h[8] & 0x3f) * 4;
		return WELL_FORMED;
	}
	if (!(h[8] & 8)) // the bit that says that there is a network identifier
		return TUNNEL_NONE;
	w->type = TEB;
	w->off = begin + sizeof(h);
	return WELL_FORMED;
}

// parse_inner decodes the packet in a tunnel of a kind that begins at off; the packet has left
// bytes from there. It fills k. It reads of k only the bytes of the frame, which are counted even
// if the inner packet is malformed, and the row of counters.
static __always_inline int parse_inner(struct within *w, struct key *k, __u32 kind, int hook)
{
	__u32 bytes = k->bytes;
	int bad = WELL_FORMED;

	__builtin_memset(k, 0, __builtin_offsetof(struct key, row));
	k->bytes = bytes;
	k->vlan = NO_VLAN;
	k->inner_vlan = NO_VLAN;
	switch (kind) {
	case TUNNEL_IPIP:
		w->type = 0x0800;
		break;
	case TUNNEL_IPV6:
		w->type = 0x86dd;
		break;
	case TUNNEL_GRE:
		bad = in_gre(w, hook);
		break;
	default:
		bad = in_udp(w, k, kind, hook);
	}
	if (bad)
		return bad;
	__u16 type = forget(&k->ether_type, w->type);
	__u32 off = forget(&k->off, w->off);

	if (type != TEB && type != 0x0800 && type != 0x86dd && type != MPLS &&
	    type != MPLS_MULTICAST)
		return TUNNEL_NONE;
	if (off > w->frame.len)
		return short_of(w);
	w->frame.at = off;
	w->frame.type = type;
	bad = parse_ethernet(&w->frame, k, hook);
	if (!bad && !k->class && type != TEB)
		return TUNNEL_NONE; // labels in front of something else
	return bad;
}

// A place is where the tunnel begins, how much of the packet there is from there on (above 16
// bits), and whether the rest is in other fragments (above 32).
#define IN_XDP(name, hook)                                                                         \
	static __noinline int name(struct env *in, struct xdp_md *ctx, __u64 place, __u32 kind)    \
	{                                                                                          \
		struct within w = {.frame = {ctx, (void *)(long)ctx->data,                         \
					     (void *)(long)ctx->data_end},                         \
				   .off = place & 0xffff};                                         \
                                                                                                   \
		w.frame.len = w.off + (place >> 16 & 0xffff);                                      \
		w.frame.cut = place >> 32;                                                         \
		return parse_inner(&w, &in->key, kind, hook);                                      \
	}

IN_XDP(inner_xdp, HOOK_XDP)
IN_XDP(inner_xdp_frags, HOOK_XDP_FRAGS)

static __noinline int inner_tcx(struct env *in, struct __sk_buff *ctx, __u64 place, __u32 kind)
{
	struct within w = {.frame = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end},
			   .off = place & 0xffff};

	w.frame.len = w.off + (place >> 16 & 0xffff);
	w.frame.cut = place >> 32;
	return parse_inner(&w, &in->key, kind, HOOK_TCX);
}

// These are here only so that the object holds whole programs.
#define ENTRY(section, hook, context)                                                              \
	SEC(section)                                                                               \
	int entry_##hook(struct context *ctx)                                                      \
	{                                                                                          \
		struct env in = {};                                                                \
		__u64 place = bpf_get_prandom_u32();                                               \
                                                                                                   \
		place |= (__u64)(bpf_get_prandom_u32() & 1) << 32;                                 \
		int bad = inner_##hook(&in, ctx, place, bpf_get_prandom_u32());                    \
                                                                                                   \
		return bad ? bad : in.key.class;                                                   \
	}

ENTRY("xdp", xdp, xdp_md)
ENTRY("xdp.frags", xdp_frags, xdp_md)
ENTRY("tc", tcx, __sk_buff)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const enum tunnel_kind *unused_tunnel_kind __attribute__((unused));
const enum tunnel_result *unused_tunnel_result __attribute__((unused));
