// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The careful decoder. The generated program decodes the common packet itself (untagged, IPv4
// without options or IPv6 without extension headers, not a fragment, TCP, UDP, ICMP) and calls
// this one for all others and for whatever looks odd. It alone decides what is malformed; the
// order of the checks is the one of docs/reference/decoding.md "Malformed".
#ifndef LEVEE_PARSE_H
#define LEVEE_PARSE_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Why a frame is malformed: 0 is well-formed, the others stand in the order of policy.Malformed.
enum malformed {
	WELL_FORMED,
	TRUNCATED_ETHERNET,
	VLAN_DEPTH,
	TRUNCATED_IP,
	IP_VERSION,
	IP_HEADER_LENGTH,
	IP_LENGTH,
	EXT_HEADERS,
	TRUNCATED_EXT,
	TRUNCATED_L4,
	L4_LENGTH,
};

// What is known of the transport header. OTHER has no fields but the protocol number.
enum transport { OTHER, TCP, UDP, UDPLITE, SCTP, DCCP, ICMP, TRANSPORTS };

// A class is what decides which fields a packet has: 0 for frames that are not IP, else
// 1 + (family * TRANSPORTS + transport) * 2 + fragment, family 0 for IPv4 and 1 for IPv6.
#define CLASS(family, transport, fragment) \
	(1 + ((family)*TRANSPORTS + (transport)) * 2 + (fragment))

// All that a rule can look at, in host byte order. The generated code reads it by offset. Small
// fields that rules compare do not lie on multiples of 8 bytes: there the verifier remembers what
// was stored and what compares have shown, and would walk the rules once for each such state.
struct key {
	__u64 src_hi, src_lo; // IPv4: the address in src_hi
	__u64 dst_hi, dst_lo;
	__u64 src_mac, dst_mac; // first octet highest
	__u32 bytes;            // frame without FCS
	__u32 len;              // IP packet, or what follows Ethernet and tags
	__u16 src_port, dst_port;
	// 1: the source has proven itself; filled where rules ask. While decoding: 1 is a fragment.
	__u8 proven;
	__u8 class;
	// Reused once an IP packet is decoded. At ingress: the answer of bpf/route.bpf.c, where rules
	// ask. At egress: whether this machine sends the packet, and which service.
	__u16 ether_type;
	__u16 icmp; // type << 8 | code
	__u16 vlan, inner_vlan; // NO_VLAN when there is none
	__u8 proto;
	__u8 ttl;
	// Reused at egress once the packet is decoded: which user and group sends it, where rules ask.
	__u16 frag; // of a first fragment: FIRST and its bytes; of a later one: its offset and MORE
	__u8 dscp;
	__u8 tcp_flags; // UDP: 1 if the flow is proven, filled where rules ask
	__u8 tags;
	// 1: the connection is known; filled where rules ask. At egress: which container sends it.
	__u8 flow;
	__u16 off; // what follows the IP headers: where it begins,
	// Reused at egress, where rules ask: the uid here, the gid in datagram.
	__u32 proof; // TCP: acknowledgement number; ICMP: bytes 4 to 7
	__u16 left;  // and how much there is
	__u16 tcp_window; // not scaled
	__u32 datagram; // of a fragment: the identification
	__u32 row; // where this CPU's row of counters begins; only there if a function counts
};

// Offsets and lengths of fragments are multiples of 8, except the length of the last. So the low
// bits are free for flags.
enum frag { MORE = 1, FIRST = 2 };

#define NO_VLAN 0xffff

// The environment is what generated code and C share while they judge one packet. Functions of
// either kind are given it; those that look at the packet are given the context behind it. It holds
// numbers only. Whatever a global function reads from memory is a number to the verifier, and the
// verifier forgets pointers in memory that was passed to such a function. So the context is an
// argument of its own, and a function that reads the packet takes its bounds from the context.
struct env {
	struct key key;
	__u64 inner;   // which matches on the packet within a tunnel hold; only there if a rule has one
	__u64 effects; // what rules leave for the program's end; only there if a rule does
};

#define MAX_EXT 8

// Where the frame comes from; a constant in each instance of the decoder.
enum hook { HOOK_XDP, HOOK_XDP_FRAGS, HOOK_TCX, HOOK_SOCKET };

// 1 in the decoder of what is in a tunnel. A number that the front end knows leaves no trace in the
// others; a flag among the arguments, of which only the inliner knows, made two of them a fifth or
// a quarter larger.
#ifndef INSIDE
#define INSIDE 0
#endif

struct frame {
	void *ctx;
	void *data;
	void *data_end;
	__u32 len; // offset of its end from the beginning of the packet
	// The rest is used within tunnels only.
	__u32 at;   // offset of its beginning
	__u16 type; // EtherType of what begins there
	__u32 cut; // 1: cut short, since the packet is a first fragment
};

// cut says whether bytes that the headers announce may be in other fragments.
#define cut(f) (INSIDE && (f)->cut)

// forget stores a number and reads it back, so that the verifier knows its size and nothing more:
// what it knows of a value differs by path (how many tags, which extension headers), and it would
// walk all that follows once for each path. A slot must not lie on a multiple of 8 bytes, where the
// verifier would remember what was stored.
static __always_inline __u32 forget(__u16 *slot, __u32 v)
{
	*(volatile __u16 *)slot = v;
	return *(volatile __u16 *)slot;
}

// forget_word is the same of 32 bits, in the upper half of 8 bytes.
static __always_inline __u32 forget_word(__u32 *slot, __u32 v)
{
	*(volatile __u32 *)slot = v;
	return *(volatile __u32 *)slot;
}

// least_of returns the lesser of two numbers below 2^63, without a branch: a branch would double
// the paths that the verifier walks.
static __always_inline __u64 least_of(__u64 a, __u64 b)
{
	__s64 less = a - b, all = less >> 63;

	asm volatile("" : "+r"(all));
	return b + (less & all);
}

// known_size has the verifier of Linux 6.1 know that a size is from 1 to 512: it forgets what a
// compare of a copy of 32 bits has shown.
static __always_inline __u64 known_size(__u64 n)
{
	asm volatile("%0 += -1; %0 &= 511; %0 += 1" : "+r"(n));
	return n;
}

// A place for what pull copies, which copies words.
#define WORDS __attribute__((aligned(8)))

// copy_words copies n bytes of the packet by the largest words. clang does not know where they lie,
// and would copy bytes; the machines that run programs load words from anywhere.
static __always_inline void copy_words(void *to, const void *from, __u32 n)
{
	__u32 i = 0;

	for (; i + 8 <= n; i += 8)
		*(__u64 __attribute__((may_alias)) *)(to + i) =
			*(const __u64 __attribute__((may_alias)) *)(from + i);
	if (n & 4) {
		*(__u32 __attribute__((may_alias)) *)(to + i) =
			*(const __u32 __attribute__((may_alias)) *)(from + i);
		i += 4;
	}
	if (n & 2) {
		*(__u16 __attribute__((may_alias)) *)(to + i) =
			*(const __u16 __attribute__((may_alias)) *)(from + i);
		i += 2;
	}
	if (n & 1)
		*(__u8 *)(to + i) = *(const __u8 *)(from + i);
}

// pull copies n bytes at off. Bytes outside the first buffer are fetched by helper where the hook
// has such frames. The mask tells the verifier a bound that the callers keep: outside of tunnels no
// header starts beyond 14 + 8 + 40 + 8 * 2048 bytes. Within tunnels the helper reads headers beyond
// the mask.
static __always_inline long pull(const struct frame *f, __u32 off, void *to, __u32 n, int hook)
{
	if (hook == HOOK_SOCKET) // which may not read the packet itself
		return bpf_skb_load_bytes_relative(f->ctx, off, to, n, BPF_HDR_START_NET);

	void *from = f->data + (off & 0x7fff);

	if (from + n <= f->data_end && !(INSIDE && off > 0x7fff)) {
		copy_words(to, from, n);
		return 0;
	}
	if (hook == HOOK_XDP_FRAGS || (INSIDE && hook == HOOK_XDP))
		return bpf_xdp_load_bytes(f->ctx, off, to, n);
	if (hook == HOOK_TCX)
		return bpf_skb_load_bytes(f->ctx, off, to, n);
	return -1;
}

// reach is pull for loops over headers that few packets have. Where the hook has a helper, reach
// does not try the first buffer: that would be one more path for the verifier in each round.
static __always_inline long reach(const struct frame *f, __u32 off, void *to, __u32 n, int hook)
{
	if (hook == HOOK_XDP_FRAGS)
		return bpf_xdp_load_bytes(f->ctx, off, to, n);
	if (hook == HOOK_TCX)
		return bpf_skb_load_bytes(f->ctx, off, to, n);
	return pull(f, off, to, n, hook);
}

// again reads the bounds of the first buffer anew. So the verifier forgets how many bytes earlier
// compares have shown to be there, which differs from path to path.
static __always_inline struct frame again(const struct frame *f, int hook)
{
	struct frame fresh = *f;

	if (hook == HOOK_SOCKET)
		return fresh;
	if (hook == HOOK_TCX) {
		volatile struct __sk_buff *skb = f->ctx;

		fresh.data = (void *)(long)skb->data;
		fresh.data_end = (void *)(long)skb->data_end;
	} else {
		volatile struct xdp_md *xdp = f->ctx;

		fresh.data = (void *)(long)xdp->data;
		fresh.data_end = (void *)(long)xdp->data_end;
	}
	return fresh;
}

// merged returns the payload bytes of each segment of a packet that the stack has merged (GRO) or
// not yet cut (GSO), 0 for a packet as on the wire. At XDP it is always 0.
static __always_inline __u32 merged(const struct frame *f, int hook)
{
	// One compare: of two clang makes code for XDP that takes 144 bytes of stack more.
	return hook >= HOOK_TCX ? ((struct __sk_buff *)f->ctx)->gso_size : 0;
}

// as_sent gives a merged packet the length of its first segment; left is what follows the IP
// headers, hlen of it the header of the transport.
static __always_inline void as_sent(const struct frame *f, struct key *k, __u32 left, __u32 hlen,
				    int hook)
{
	__u32 segment = hlen + merged(f, hook);

	if (segment > hlen && segment < left)
		k->len = k->len - left + segment;
}

// on_wire sets k->bytes of a merged packet to the bytes of all its segments on the wire. Each has
// all headers, which end hlen bytes behind off, and the VLAN tag that skb holds beside the frame.
static __always_inline void on_wire(const struct frame *f, struct key *k, __u32 off, __u32 left,
				    __u32 hlen, int hook)
{
	__u32 size = merged(f, hook);

	if (INSIDE || !size || hlen + size >= left)
		return;
	__u32 segments = ((struct __sk_buff *)f->ctx)->gso_segs;

	if (!segments) // who made it may not have counted, such as a virtual machine
		segments = (left - hlen + size - 1) / size;
	if (((struct __sk_buff *)f->ctx)->vlan_present)
		hlen += 4;
	k->bytes += (segments - 1) * (off + hlen);
}

// parse_transport decodes the header of proto in the left bytes at off and sets the class.
static __always_inline int parse_transport(const struct frame *f, struct key *k, __u32 off,
					   __u32 left, int family, int fragment, int hook)
{
	WORDS __u8 b[16];
	__u32 hlen = 0;
	int transport;

	switch (k->proto) {
	case 6:
		if (left < 20 || pull(f, off, b, 16, hook))
			return TRUNCATED_L4;
		hlen = (b[12] >> 4) * 4;
		if (hlen < 20 || hlen > left)
			return L4_LENGTH;
		k->tcp_flags = b[13];
		k->tcp_window = b[14] << 8 | b[15];
		k->proof = (__u32)b[8] << 24 | b[9] << 16 | b[10] << 8 | b[11];
		as_sent(f, k, left, hlen, hook);
		transport = TCP;
		break;
	case 17: {
		if (left < 8 || pull(f, off, b, 8, hook))
			return TRUNCATED_L4;
		__u32 ulen = b[4] << 8 | b[5];
		if (ulen < 8 || (!fragment && !cut(f) && ulen > left))
			return L4_LENGTH;
		if (ulen < left) // the payload ends there; sockets never see more
			k->left = ulen;
		hlen = 8;
		as_sent(f, k, left, hlen, hook);
		transport = UDP;
		break;
	}
	case 136:
		if (left < 8 || pull(f, off, b, 4, hook))
			return TRUNCATED_L4;
		transport = UDPLITE;
		break;
	case 132:
		if (left < 12 || pull(f, off, b, 4, hook))
			return TRUNCATED_L4;
		transport = SCTP;
		break;
	case 33:
		if (left < 12 || pull(f, off, b, 4, hook))
			return TRUNCATED_L4;
		transport = DCCP;
		break;
	default:
		if (k->proto != (family ? 58 : 1)) {
			on_wire(f, k, off, left, hlen, hook);
			k->class = CLASS(family, OTHER, fragment);
			return WELL_FORMED;
		}
		if (left < 8 || pull(f, off, b, 8, hook))
			return TRUNCATED_L4;
		k->icmp = b[0] << 8 | b[1];
		k->proof = (__u32)b[4] << 24 | b[5] << 16 | b[6] << 8 | b[7];
		k->class = CLASS(family, ICMP, fragment);
		return WELL_FORMED;
	}
	k->src_port = b[0] << 8 | b[1];
	k->dst_port = b[2] << 8 | b[3];
	k->class = CLASS(family, transport, fragment);
	on_wire(f, k, off, left, hlen, hook);
	return WELL_FORMED;
}

// note returns key.frag of a packet with bytes of data at the offset at of its datagram; 0 if it is
// no fragment.
static __always_inline __u16 note(__u32 at, __u32 bytes, __u32 more)
{
	if (at)
		return more ? at | MORE : at;
	return more ? (bytes & ~7) | FIRST : 0;
}

struct ipv4 {
	__u8 version_ihl, tos;
	__be16 tot_len, id, frag_off;
	__u8 ttl, proto;
	__be16 check;
	__be32 src, dst;
};

struct ipv6 {
	__be32 flow;
	__be16 len;
	__u8 next, hops;
	__be64 src_hi, src_lo, dst_hi, dst_lo;
} __attribute__((packed));

// An extension header; frag and id are there in a fragment header only.
struct extension {
	__u8 next, len;
	__be16 frag;
	__be32 id;
};

static __always_inline int parse_ipv4(const struct frame *f, struct key *k, __u32 off, int hook)
{
	WORDS struct ipv4 ip;
	__u32 rest = f->len - off;

	if (rest < sizeof(ip) || pull(f, off, &ip, sizeof(ip), hook))
		return TRUNCATED_IP;
	if (ip.version_ihl >> 4 != 4)
		return IP_VERSION;
	__u32 hlen = (ip.version_ihl & 0xf) * 4;
	if (hlen < 20)
		return IP_HEADER_LENGTH;
	__u32 total = bpf_ntohs(ip.tot_len);
	if (!total && rest > 0xffff && merged(f, hook))
		total = 0xffff; // BIG TCP: more than the field can say
	if (cut(f) && hlen > rest)
		return TRUNCATED_IP;
	if (total < hlen || (!cut(f) && total > rest))
		return IP_LENGTH;
	__u32 frag = bpf_ntohs(ip.frag_off);
	__u32 at = (frag & 0x1fff) * 8;
	if (at + total > 0xffff)
		return IP_LENGTH;

	k->src_hi = bpf_ntohl(ip.src);
	k->dst_hi = bpf_ntohl(ip.dst);
	k->len = total;
	k->ttl = ip.ttl;
	k->dscp = ip.tos >> 2;
	k->proto = ip.proto;
	if (cut(f) && total > rest)
		total = rest;
	off = forget(&k->off, off + hlen);
	__u32 left = forget(&k->left, total - hlen);
	k->datagram = bpf_ntohs(ip.id);
	k->frag = note(at, left, frag & 0x2000);
	if (at) {
		k->class = CLASS(0, OTHER, 1);
		return WELL_FORMED;
	}
	return parse_transport(f, k, off, left, 0, frag >> 13 & 1, hook);
}

static __always_inline int is_ext(__u8 nh)
{
	return nh == 0 || nh == 43 || nh == 44 || nh == 51 || nh == 60 || nh == 135;
}

static __always_inline int parse_ipv6(const struct frame *f, struct key *k, __u32 off, int hook)
{
	WORDS struct ipv6 ip;
	WORDS struct extension ext;
	__u32 rest = f->len - off;

	if (rest < sizeof(ip) || pull(f, off, &ip, sizeof(ip), hook))
		return TRUNCATED_IP;
	__u32 flow = bpf_ntohl(ip.flow);
	if (flow >> 28 != 6)
		return IP_VERSION;
	__u32 left = bpf_ntohs(ip.len);
	if (!left && rest > 0xffff && merged(f, hook)) // BIG TCP, likewise
		left = 0xffff - sizeof(ip);
	if (!cut(f) && left + sizeof(ip) > rest)
		return IP_LENGTH;

	k->src_hi = bpf_be64_to_cpu(ip.src_hi);
	k->src_lo = bpf_be64_to_cpu(ip.src_lo);
	k->dst_hi = bpf_be64_to_cpu(ip.dst_hi);
	k->dst_lo = bpf_be64_to_cpu(ip.dst_lo);
	k->len = left + sizeof(ip);
	k->ttl = ip.hops;
	k->dscp = flow >> 22 & 0x3f;

	volatile __u8 *fragment = &k->proven;
	__u8 next = ip.next;
	off += sizeof(ip);
	if (cut(f) && left > rest - sizeof(ip))
		left = rest - sizeof(ip);
	if (!ip.len && !next && merged(f, hook)) {
		// BIG TCP before Linux 7.0 has a jumbo option that was not on the wire.
		if (pull(f, off, &ext, 2, hook))
			return TRUNCATED_EXT;
		next = ext.next;
		off += 8;
	}
	for (int i = 0; i <= MAX_EXT; i++) {
		off = forget(&k->off, off);
		left = forget(&k->left, left);
		if (!is_ext(next))
			break;
		if (i == MAX_EXT)
			return EXT_HEADERS;
		if (left < sizeof(ext) || reach(f, off, &ext, sizeof(ext), hook))
			return TRUNCATED_EXT;
		__u32 hlen = 8;
		if (next == 51)
			hlen = (ext.len + 2) * 4;
		else if (next != 44)
			hlen = (ext.len + 1) * 8;
		if (hlen > left)
			return TRUNCATED_EXT;
		off += hlen;
		left -= hlen;
		if (next == 44) {
			__u32 frag = bpf_ntohs(ext.frag);
			__u32 at = frag & 0xfff8;
			if (at + left > 0xffff)
				return IP_LENGTH;
			if (frag & 0xfff9) {
				k->datagram = bpf_ntohl(ext.id);
				k->frag = note(at, left, frag & 1);
			}
			if (at) {
				k->off = off;
				k->left = left;
				k->proto = ext.next;
				k->class = CLASS(1, OTHER, 1);
				return WELL_FORMED;
			}
			if (frag & 1)
				*fragment = 1;
		}
		next = ext.next;
	}
	k->proto = next;
	return parse_transport(f, k, off, left, 1, *fragment, hook);
}

#define MAX_LABELS 8

// look_through finds IP inside PPPoE (RFC 2516) or MPLS (RFC 3032). It sets at and type to where IP
// begins and its EtherType, and for PPPoE the frame's end. Without such IP they keep their values.
static __always_inline int look_through(struct frame *f, __u16 *type, __u32 *at, int hook)
{
	__u32 off = *at;
	__u8 first;

	if (*type == 0x8864) {
		WORDS __u8 h[8];

		if (f->len < off + sizeof(h) || pull(f, off, h, sizeof(h), hook))
			return TRUNCATED_ETHERNET;
		__u32 len = h[4] << 8 | h[5], ppp = h[6] << 8 | h[7], bytes = 2;

		if (h[6] & 1) { // in one byte (RFC 1661 section 6.5), as Linux took it until 7.1
			ppp = h[6];
			bytes = 1;
		}
		if (ppp != 0x0021 && ppp != 0x0057) // Linux looks at neither version nor code
			return WELL_FORMED;
		if (len < bytes || (!cut(f) && off + 6 + len > f->len))
			return TRUNCATED_ETHERNET;
		*type = ppp == 0x0021 ? 0x0800 : 0x86dd;
		*at = off + 6 + bytes;
		if (!cut(f) || off + 6 + len < f->len)
			f->len = off + 6 + len;
		return WELL_FORMED;
	}
	if (*type != 0x8847 && *type != 0x8848)
		return WELL_FORMED;
	for (int i = 0; i < MAX_LABELS; i++) {
		WORDS __u8 label[4];

		if (f->len < off + sizeof(label) || reach(f, off, label, sizeof(label), hook))
			return TRUNCATED_ETHERNET;
		off += sizeof(label);
		if (!(label[2] & 1)) // the last one has the bit
			continue;
		if (f->len <= off || reach(f, off, &first, 1, hook))
			return cut(f) ? TRUNCATED_ETHERNET : WELL_FORMED;
		first >>= 4;
		if (first == 4 || first == 6) {
			*type = first == 4 ? 0x0800 : 0x86dd;
			*at = off;
		}
		return WELL_FORMED;
	}
	return WELL_FORMED;
}

#define ETHERNET 14 // bytes of its header

// TEB is the EtherType of Ethernet within a tunnel (RFC 7637).
#define TEB 0x6558

static __always_inline int parse_ethernet(const struct frame *whole, struct key *k, int hook)
{
	struct frame frame = *whole, *f = &frame;
	WORDS __u8 eth[16] = {};
	WORDS __u8 tag[4];
	__u32 begin = INSIDE ? f->at : 0, off = begin + ETHERNET;
	__u16 type;

	if (INSIDE && f->type != TEB) {
		type = f->type;
		off = begin;
		goto network;
	}
	if (f->len < off || pull(f, begin, eth, ETHERNET, hook))
		return TRUNCATED_ETHERNET;
	const __be64 __attribute__((may_alias)) *macs = (void *)eth;

	k->dst_mac = bpf_be64_to_cpu(macs[0]) >> 16;
	k->src_mac = (bpf_be64_to_cpu(macs[0]) & 0xffff) << 32 | bpf_be64_to_cpu(macs[1]) >> 32;
	type = eth[12] << 8 | eth[13];
	// Two tags at most, with one that the device may have taken off. Those with id 0 only carry a
	// priority, and are not counted.
	__u32 before = 0;

	if (hook == HOOK_TCX && !INSIDE)
		before = !!((struct __sk_buff *)f->ctx)->vlan_present;
	volatile __u8 *tags = &k->tags;
	for (int i = 0; i < 3; i++) {
		if (type != 0x8100 && type != 0x88a8)
			break;
		if (before + i >= 2)
			return VLAN_DEPTH;
		if (f->len < off + sizeof(tag) || pull(f, off, tag, sizeof(tag), hook))
			return TRUNCATED_ETHERNET;
		__u16 id = (tag[0] << 8 | tag[1]) & 0xfff;
		if (id) {
			if (*tags == 0)
				k->vlan = id;
			else
				k->inner_vlan = id;
			*tags += 1;
		}
		type = tag[2] << 8 | tag[3];
		off += sizeof(tag);
	}
network:
	off = forget(&k->off, off);
	int bad = look_through(f, &type, &off, hook);
	k->ether_type = type;
	if (bad)
		return bad;
	off = forget(&k->off, off);
	frame = again(f, hook);
	if (type == 0x0800)
		return parse_ipv4(f, k, off, hook);
	if (type == 0x86dd)
		return parse_ipv6(f, k, off, hook);
	k->len = f->len - off;
	k->class = 0;
	return WELL_FORMED;
}

// parse_ip is parse_ethernet for devices without a header in front of IP, whose version says what a
// packet is.
static __always_inline int parse_ip(const struct frame *f, struct key *k, int hook)
{
	__u8 first;

	if (f->len < 20 || pull(f, 0, &first, 1, hook))
		return TRUNCATED_IP;
	if (first >> 4 == 4) {
		k->ether_type = 0x0800;
		return parse_ipv4(f, k, 0, hook);
	}
	if (first >> 4 == 6) {
		k->ether_type = 0x86dd;
		return parse_ipv6(f, k, 0, hook);
	}
	return IP_VERSION;
}

#endif
