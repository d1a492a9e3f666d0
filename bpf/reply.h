// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Turns a packet into the reply to its sender, and decides which senders must get no reply.
#ifndef LEVEE_REPLY_H
#define LEVEE_REPLY_H

#include "answer.h"
#include "cookie.h"

// What the kernel takes, by Ethernet and by IP, on the interface of a program: the possible
// destinations of what is answered. Each list is in order.
#define OWN_MACS 64
#define OWN_NONE 1024

struct cookie_address {
	__u64 hi, lo; // of IPv4 the address and 0
};

struct cookie_own {
	__u64 mac;   // of the interface
	__u32 macs;  // in the list below; 0: frames for any address are as good as its own
	__u32 nones; // in the list below
	__u64 others[OWN_MACS];		      // that the kernel takes there, too
	struct cookie_address none[OWN_NONE]; // that belong to no single host, such as broadcast
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cookie_own);
} own SEC(".maps");

struct tcp {
	__be16 src_port, dst_port;
	__be32 seq, ack;
	__u8 offset, flags;
	__be16 window, check, urgent;
};

// A DNS message with the UDP header in front of it, up to its question.
struct message {
	__be16 src_port, dst_port, len, check;
	__be16 id;
	__u8 flags, more;
	__be16 questions, answers, authorities, additional;
};

#define HEADERS 20 // bytes of each of these two
#define TEXT 512   // more than a message has behind them, a power of two
#define MOST_TEXT (255 + 4 + 11) // a name, type and class, and OPT without options

#define LINK 22 // addresses, two tags and the EtherType, at most

// What goes back in place of a packet, up to what stands behind these headers.
struct answer {
	__u8 link[LINK]; // in front of IP, and what else there is up to that many bytes
	union {
		struct ipv4 four;
		struct ipv6 six;
	};
	union {
		struct tcp tcp;
		struct message message;
	};
	__u64 pseudo; // sum of the pseudo header
};

// What one CPU works on: more than the stack has room for, beside that of the program.
struct cookie_work {
	struct key key;
	struct answer answer;
	__u64 words[6];
	__u8 text[TEXT + 16]; // of a message: the question and what follows
	__u16 slots[4];	 // of numbers that the verifier shall forget
	// What a function was asked, while it decodes: what it keeps takes stack.
	__u64 rate;
	__u32 rule, detail; // of DNS: 1 with EDNS; of A2S: the tally of what is given
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cookie_work);
} work SEC(".maps");

#define PACKET_HOST 0 // of linux/if_packet.h

static __always_inline __be16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline __u64 sum_of(const void *from, int words)
{
	const __u32 __attribute__((may_alias)) *w = from;
	__u64 sum = 0;

	for (int i = 0; i < words; i++)
		sum += w[i];
	return sum;
}

// wrap makes the headers of Ethernet and IP of what goes back, with so many bytes behind them.
static __always_inline void wrap(struct answer *a, const struct key *k, int six, __u8 proto,
				 __u32 bytes)
{
	__builtin_memset(a, 0, sizeof(*a));
	for (int i = 0; i < 6; i++) {
		a->link[i] = k->src_mac >> (40 - 8 * i);
		a->link[6 + i] = k->dst_mac >> (40 - 8 * i);
	}
	if (six) {
		a->six.flow = bpf_htonl(6 << 28);
		a->six.len = bpf_htons(bytes);
		a->six.next = proto;
		a->six.hops = 64;
		a->six.src_hi = bpf_cpu_to_be64(k->dst_hi);
		a->six.src_lo = bpf_cpu_to_be64(k->dst_lo);
		a->six.dst_hi = bpf_cpu_to_be64(k->src_hi);
		a->six.dst_lo = bpf_cpu_to_be64(k->src_lo);
		a->pseudo = sum_of((void *)&a->six + 8, 8);
	} else {
		a->four.version_ihl = 0x45;
		a->four.tot_len = bpf_htons(sizeof(a->four) + bytes);
		a->four.frag_off = bpf_htons(0x4000); // do not fragment
		a->four.ttl = 64;
		a->four.proto = proto;
		a->four.src = bpf_htonl(k->dst_hi);
		a->four.dst = bpf_htonl(k->src_hi);
		a->four.check = fold(sum_of(&a->four, 5));
		a->pseudo = sum_of(&a->four.src, 2);
	}
	a->pseudo += bpf_htons(proto) + bpf_htons(bytes);
}

// is_partial says whether the stack has yet to sum the packet up, which it does when it sends
// it: of those only the pseudo header is in the checksum.
static __always_inline int is_partial(struct __sk_buff *ctx, __u32 at)
{
	__be16 before = 0, after = 0;

	if (bpf_skb_load_bytes(ctx, at, &before, 2) || bpf_l4_csum_replace(ctx, at, 0, 1, 2) ||
	    bpf_skb_load_bytes(ctx, at, &after, 2))
		return 0;
	return before == after;
}

// shed takes options of IPv4 or extension headers of IPv6 out of a packet, in front of which the IP
// header begins at some place. So offsets that the stack keeps, such as the start of a checksum,
// stay right. bpf_skb_adjust_room does not look behind a tag in the frame, which is the second one;
// that tag leaves the frame meanwhile. It returns the offset of the IP header.
static __always_inline int shed(struct __sk_buff *skb, __u32 at, __u32 extra)
{
	if (at > 14) {
		if (bpf_skb_vlan_pop(skb))
			return -1;
		at -= 4;
	}
	return bpf_skb_adjust_room(skb, -(__s32)extra, BPF_ADJ_ROOM_NET, 0) ? -1 : (int)at;
}

// put copies what stands behind the headers into the packet, n bytes of it.
static __always_inline long put(void *ctx, __u32 at, struct cookie_work *w, __u32 n, int hook)
{
	n = forget(&w->slots[0], n);
	if (!n || n > MOST_TEXT)
		return -1;
	return hook == HOOK_TCX ? bpf_skb_store_bytes(ctx, at, w->text, known_size(n), 0) :
				  bpf_xdp_store_bytes(ctx, at, w->text, known_size(n));
}

static __always_inline int send_tcx(struct __sk_buff *skb, struct cookie_work *w, __be16 *check,
				    int six, __u32 at, __u32 off, __u32 head, __u32 n)
{
	struct answer *a = &w->answer;
	__u32 ip = six ? sizeof(a->six) : sizeof(a->four), extra = off - at - ip, l3 = at;
	__u32 tci = skb->vlan_tci;
	__be16 proto = skb->vlan_proto;
	int partial = is_partial(skb, off + ((void *)check - (void *)&a->tcp));

	if (partial)
		*check = ~fold(a->pseudo);
	if (extra && (at <= 14 || skb->vlan_present)) {
		int now = shed(skb, at, extra);

		// The kernel refuses where it is not known to be IP, such as in test runs without Ethernet:
		// what is whole may be cut anyway.
		if (now >= 0)
			l3 = now & 0x1f;
		else if (partial || at > 14)
			return COOKIE_DROPPED;
	}
	// Nothing is behind it: it would be summed up with the rest.
	__u32 all = l3 + ip + head + n;

	if ((all != skb->len && bpf_skb_change_tail(skb, all, 0)) ||
	    (l3 && bpf_skb_store_bytes(skb, 0, a->link, 12, 0)) ||
	    bpf_skb_store_bytes(skb, l3, six ? (void *)&a->six : &a->four, ip, 0) ||
	    bpf_skb_store_bytes(skb, l3 + ip, &a->tcp, head, 0) ||
	    (n && put(skb, l3 + ip + head, w, n, HOOK_TCX)) ||
	    (l3 != at && bpf_skb_vlan_push(skb, proto, tci)))
		return COOKIE_DROPPED;
	skb->mark = ANSWER_MARK;
	bpf_redirect(skb->ifindex, 0);
	return COOKIE_ANSWERED;
}

// send_xdp has the headers of the answer end where those of the packet end: the stack, where it is
// generic XDP, knows that place.
static __always_inline int send_xdp(const struct frame *f, struct cookie_work *w, int six,
				    __u32 at, __u32 off, __u32 head, __u32 n, int hook)
{
	struct answer *a = &w->answer;
	struct xdp_md *ctx = f->ctx;
	__u32 ip = six ? sizeof(a->six) : sizeof(a->four), extra = off - at - ip;
	// Asked again it takes no stack meanwhile.
	__u32 len = hook == HOOK_XDP_FRAGS ? bpf_xdp_get_buff_len(ctx) : f->len;
	__u32 all = at + ip + head + n, bytes = len - extra;

	if (all < 60 && at)
		all = bytes < 60 ? bytes : 60; // what an Ethernet frame has at least
	if (bpf_xdp_load_bytes(ctx, 12, a->link + 12, sizeof(a->link) - 12) ||
	    (extra && bpf_xdp_adjust_head(ctx, extra)) ||
	    bpf_xdp_adjust_tail(ctx, (int)(all - bytes)) ||
	    (n && put(ctx, at + ip + head, w, n, hook)))
		return COOKIE_DROPPED;

	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	void *to = data + (at & 0x3f);

	if (data + sizeof(a->link) > end)
		return COOKIE_DROPPED;
	if (at)
		__builtin_memcpy(data, a->link, sizeof(a->link));
	// Each family has a check of its own: verifiers forget the family of a length.
	if (six) {
		if (to + sizeof(a->six) + head > end)
			return COOKIE_DROPPED;
		__builtin_memcpy(to, &a->six, sizeof(a->six));
		__builtin_memcpy(to + sizeof(a->six), &a->tcp, head);
	} else {
		if (to + sizeof(a->four) + head > end)
			return COOKIE_DROPPED;
		__builtin_memcpy(to, &a->four, sizeof(a->four));
		__builtin_memcpy(to + sizeof(a->four), &a->tcp, head);
	}
	return COOKIE_ANSWERED;
}

// send makes the packet the answer: from at on there are headers of IP and of TCP or UDP, in front
// of them tags and addresses of the frame, behind them n bytes of text. The header of TCP or UDP of
// the packet begins at off; head is how long that of the answer is, check the checksum in it.
static __always_inline int send(const struct frame *f, struct cookie_work *w, __be16 *check,
				int six, __u32 at, __u32 off, __u32 head, __u32 n, int hook)
{
	return hook == HOOK_TCX ? send_tcx(f->ctx, w, check, six, at, off, head, n) :
				  send_xdp(f, w, six, at, off, head, n, hook);
}

// frame_xdp and frame_tcx are the frame that a program is given.
static __always_inline struct frame frame_xdp(struct xdp_md *ctx, int hook)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};

	f.len = hook == HOOK_XDP_FRAGS ? bpf_xdp_get_buff_len(ctx) : f.data_end - f.data;
	return f;
}

static __always_inline struct frame frame_tcx(struct __sk_buff *ctx)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};

	return f;
}

// decoded returns this CPU's work memory with the packet's key and the caller's request, 0 if the
// frame is malformed. With ip the frame begins with IP.
static __always_inline struct cookie_work *decoded(const struct frame *f, __u32 rule, __u64 rate,
						   __u32 detail, int hook, int ip)
{
	__u32 zero = 0;
	struct cookie_work *w = bpf_map_lookup_elem(&work, &zero);

	if (!w)
		return 0;
	*(volatile __u64 *)&w->rate = rate;
	*(volatile __u32 *)&w->rule = rule;
	*(volatile __u32 *)&w->detail = detail;
	__builtin_memset(&w->key, 0, sizeof(w->key));
	return (ip ? parse_ip(f, &w->key, hook) : parse_ethernet(f, &w->key, hook)) ? 0 : w;
}

// EACH_HOOK has a function for each kind of frame: its name, context and frame, the hook, and
// whether the frame begins with IP.
#define EACH_HOOK(F)                                                                               \
	F(xdp, xdp_md, frame_xdp(ctx, HOOK_XDP), HOOK_XDP, 0)                                      \
	F(xdp_frags, xdp_md, frame_xdp(ctx, HOOK_XDP_FRAGS), HOOK_XDP_FRAGS, 0)                    \
	F(tcx, __sk_buff, frame_tcx(ctx), HOOK_TCX, 0)                                             \
	F(xdp_ip, xdp_md, frame_xdp(ctx, HOOK_XDP), HOOK_XDP, 1)                                   \
	F(xdp_frags_ip, xdp_md, frame_xdp(ctx, HOOK_XDP_FRAGS), HOOK_XDP_FRAGS, 1)                 \
	F(tcx_ip, __sk_buff, frame_tcx(ctx), HOOK_TCX, 1)

#define CARRIED 0xffff

// network is where the header of IP begins, CARRIED within PPPoE or MPLS. The verifier would walk
// what follows once for each number of tags.
static __always_inline __u32 network(const struct frame *f, struct cookie_work *w, int hook)
{
	__u32 off = 12;
	__be16 type = 0;

	for (int i = 0; i < 3; i++) {
		if (pull(f, off, &type, 2, hook))
			break;
		if (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8))
			break;
		off += 4;
	}
	if (type != bpf_htons(0x0800) && type != bpf_htons(0x86dd))
		return CARRIED;
	return forget(&w->slots[2], off + 2);
}

// is_ours says whether the kernel takes frames for the destination. What it says of a packet
// itself, at tc, is never out of date.
static __always_inline int is_ours(const struct cookie_own *o, struct cookie_work *w,
				   const struct frame *f, int hook)
{
	__u64 mac = w->key.dst_mac;
	__u32 at = 0, n = o->macs;

	if (!n || mac == o->mac)
		return 1;
	if (hook == HOOK_TCX && ((struct __sk_buff *)f->ctx)->pkt_type == PACKET_HOST)
		return 1;
	for (int i = 0; i < 6 && n > 1; i++) {
		__u32 half = n / 2;

		if (o->others[(at + half) & (OWN_MACS - 1)] <= mac)
			at += half;
		at = forget(&w->slots[1], at);
		n -= half;
	}
	return o->others[at & (OWN_MACS - 1)] == mac;
}

// is_listed says whether an address belongs to no single host of the networks of this machine.
static __always_inline int is_listed(const struct cookie_own *o, struct cookie_work *w, __u64 hi,
				     __u64 lo)
{
	__u32 at = 0, n = o->nones;
	const struct cookie_address *a;

	for (int i = 0; i < 10 && n > 1; i++) {
		__u32 half = n / 2;

		a = &o->none[(at + half) & (OWN_NONE - 1)];
		if (a->hi < hi || (a->hi == hi && a->lo <= lo))
			at += half;
		at = forget(&w->slots[1], at);
		n -= half;
	}
	a = &o->none[at & (OWN_NONE - 1)];
	return n && a->hi == hi && a->lo == lo;
}

// is_none says so of the destination, and of the source, to which the answer would go. One search
// serves both: the stack has no room for what two keep.
static __always_inline int is_none(const struct cookie_own *o, struct cookie_work *w)
{
	const __u64 *a = &w->key.dst_hi;

#pragma clang loop unroll(disable)
	for (int i = 0; i < 2; i++) {
		if (is_listed(o, w, a[0], a[1]))
			return 1;
		a = &w->key.src_hi;
		asm volatile("" : "+r"(a));
	}
	return 0;
}

// is_host says whether an address may be that of one host: not of several, nor of none, nor of this
// machine alone.
static __always_inline int is_host(__u64 hi, __u64 lo, int six)
{
	if (six)
		return hi >> 56 != 0xff && (hi || lo > 1);
	return hi >> 28 != 0xe && hi != 0xffffffff && hi >> 24 != 0 && hi >> 24 != 127;
}

// is_between_hosts says whether a packet goes from one host to one. Ethernet addresses of groups
// have the lowest bit of their first octet set.
static __always_inline int is_between_hosts(const struct key *k, int six)
{
	return !((k->src_mac | k->dst_mac) >> 40 & 1) && is_host(k->src_hi, k->src_lo, six) &&
	       is_host(k->dst_hi, k->dst_lo, six);
}

#endif
