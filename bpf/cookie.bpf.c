// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a cookie does to a TCP segment. The answer to a SYN is what a host sends that has an old
// connection of the same ports: an ACK, of a number that the client never sent (RFC 9293 section
// 3.5.1, figure 9). The number is made of the addresses, the ports, the time and a secret key. A
// client that is there resets that connection, with the number (section 3.10.7.3), and says its
// SYN again. So nothing is kept of a SYN, whatever listens behind, and the connection is the
// client's and the listener's own. Package cookie takes the functions out of this object.
#include "answer.h"
#include "parse.h"
#include "sip.h"

struct cookie_head {
	__u64 key[2]; // of SipHash
	__u64 clock;  // jiffies for tests, 0 for those of the kernel
	__u32 second; // in jiffies
	__u32 lease;  // of a source that is proven, in jiffies, and a second: see flow.h
	__u64 proven; // RSTs that proved their source
	__u64 forged; // RSTs that proved nothing
	__u64 evicted; // sources that lost their place before their lease had ended
	__u64 unused;
};

// A source that is proven; expires is the lower 32 bits of jiffies. A tag of 0 is no source: right
// after a boot, and every 50 days, a time of 0 lies ahead.
struct cookie_source {
	__u32 tag, expires;
};

// What is known of the SYNs that come to a rule. Times are in jiffies.
struct cookie_meter {
	__u64 start; // of the second that is counted
	__u64 count; // SYNs in it
	__u64 until; // answers are given
	__u64 last;  // answer
};

#define COOKIE_LINE 8
#define COOKIE_LINES (1 << 16)
#define COOKIE_METERS 256 // a rule has the one of its number

struct cookie_memory {
	struct cookie_head head;
	struct cookie_meter meters[COOKIE_METERS];
	// A bit for the last three of each tag in a line: of forged sources most need not be looked for
	// in a line, which is a miss of all caches.
	__u8 tags[COOKIE_LINES];
	struct cookie_source sources[COOKIE_LINES][COOKIE_LINE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cookie_memory);
} cookies SEC(".maps");

// What the kernel takes, by Ethernet and by IP, on the interface of a program: the possible
// destinations of a SYN. Each list is in order.
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

#define LINK 22 // addresses, two tags and the EtherType, at most

// What goes back in place of a SYN.
struct answer {
	__u8 link[LINK]; // in front of IP, and what else there is up to that many bytes
	union {
		struct ipv4 four;
		struct ipv6 six;
	};
	struct tcp tcp;
	__u64 pseudo; // sum of the pseudo header
};

// What one CPU works on: more than the stack has room for, beside that of the program.
struct cookie_work {
	struct key key;
	struct answer answer;
	__u64 words[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cookie_work);
} work SEC(".maps");

// What becomes of a segment.
enum cookie_result {
	COOKIE_GOES_ON,
	COOKIE_ANSWERED, // the packet is the answer now
	COOKIE_DROPPED,  // it has proven its source, or could not be made the answer
};

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define ACK 0x10

#define PACKET_HOST 0 // of linux/if_packet.h

#define PERIOD 64 // seconds for which a number is given; it holds for one period more
#define OPENS 2	  // seconds for which answers go on when the rate has been exceeded

static __always_inline __u64 clock_of(const struct cookie_memory *c)
{
	return c->head.clock ? c->head.clock : bpf_jiffies64();
}

// number is what the client of a segment is to reset: the lower half; the upper is any other. Its
// last bit is that of the period, so that a proof asks for one hash.
static __always_inline __u64 number(const struct cookie_head *h, struct cookie_work *w,
	__u64 period)
{
	const struct key *k = &w->key;
	__u64 rest = (__u64)k->class << 32 | (__u32)k->src_port << 16 | k->dst_port;
	__u64 hash;

	if (k->class == CLASS(0, TCP, 0)) {
		w->words[0] = k->src_hi << 32 | (__u32)k->dst_hi;
		w->words[1] = rest;
		w->words[2] = period;
		hash = sip_hash(h->key, w->words, 3);
	} else {
		w->words[0] = k->src_hi;
		w->words[1] = k->src_lo;
		w->words[2] = k->dst_hi;
		w->words[3] = k->dst_lo;
		w->words[4] = rest;
		w->words[5] = period;
		hash = sip_hash(h->key, w->words, 6);
	}
	return (hash & ~1ULL) | (period & 1);
}

// line finds the line in which a source may have its place, and its tag.
static __always_inline __u32 line(struct cookie_memory *c, __u64 hi, __u64 lo, __u32 class,
				  __u32 *tag)
{
	const __u64 words[] = {hi, lo, (__u64)class << 32 | 0xffffffff}; // no period
	__u64 hash = sip_hash(c->head.key, words, 3);

	*tag = (__u32)hash | 1U << 31;
	return hash >> 48 & (COOKIE_LINES - 1);
}

static __always_inline __u8 bit(__u32 tag) { return 1 << (tag & 7); }

static __always_inline int is_proven(struct cookie_memory *c, __u64 hi, __u64 lo, __u32 class,
				     __u32 now)
{
	__u32 tag, at = line(c, hi, lo, class, &tag);
	struct cookie_source *s = c->sources[at];

	if (!(c->tags[at] & bit(tag)))
		return 0;
	for (int i = 0; i < COOKIE_LINE; i++)
		if (s[i].tag == tag && s[i].expires - now - 1 < c->head.lease)
			return 1;
	return 0;
}

// prove gives a source a place, and says how long that of another would have held it, in jiffies.
static __always_inline __u32 prove(struct cookie_memory *c, __u64 hi, __u64 lo, __u32 class,
				   __u32 now)
{
	__u32 tag, least = 0xffffffff, at = 0, l = line(c, hi, lo, class, &tag);
	struct cookie_source *s = c->sources[l];
	__u8 tags = bit(tag);

	for (int i = 0; i < COOKIE_LINE; i++) {
		__u32 left = s[i].expires - now;

		if (!s[i].tag || left - 1 >= c->head.lease)
			left = 0;
		else
			tags |= bit(s[i].tag);
		if (s[i].tag == tag)
			left = 0;
		if (left < least || s[i].tag == tag) {
			least = left;
			at = i;
		}
	}
	if (least)
		__sync_fetch_and_add(&c->head.evicted, 1);
	at &= COOKIE_LINE - 1;
	s[at].expires = now + c->head.lease - c->head.second;
	s[at].tag = tag;
	c->tags[l] = tags; // without those whose time is over
	return least;
}

// above counts a SYN, and says whether answers are given.
static __always_inline int above(const struct cookie_head *h, struct cookie_meter *m, __u64 rate,
				 __u64 now)
{
	if (now - m->start >= h->second) {
		m->start = now;
		m->count = 0;
	}
	if (__sync_fetch_and_add(&m->count, 1) >= rate && m->until != now + OPENS * h->second)
		m->until = now + OPENS * h->second;
	return now < m->until;
}

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

static __always_inline void make(struct answer *a, const struct key *k, int six, __u64 number)
{
	__builtin_memset(a, 0, sizeof(*a));
	for (int i = 0; i < 6; i++) {
		a->link[i] = k->src_mac >> (40 - 8 * i);
		a->link[6 + i] = k->dst_mac >> (40 - 8 * i);
	}
	if (six) {
		a->six.flow = bpf_htonl(6 << 28);
		a->six.len = bpf_htons(sizeof(a->tcp));
		a->six.next = 6;
		a->six.hops = 64;
		a->six.src_hi = bpf_cpu_to_be64(k->dst_hi);
		a->six.src_lo = bpf_cpu_to_be64(k->dst_lo);
		a->six.dst_hi = bpf_cpu_to_be64(k->src_hi);
		a->six.dst_lo = bpf_cpu_to_be64(k->src_lo);
		a->pseudo = sum_of((void *)&a->six + 8, 8);
	} else {
		a->four.version_ihl = 0x45;
		a->four.tot_len = bpf_htons(sizeof(a->four) + sizeof(a->tcp));
		a->four.frag_off = bpf_htons(0x4000); // do not fragment
		a->four.ttl = 64;
		a->four.proto = 6;
		a->four.src = bpf_htonl(k->dst_hi);
		a->four.dst = bpf_htonl(k->src_hi);
		a->four.check = fold(sum_of(&a->four, 5));
		a->pseudo = sum_of(&a->four.src, 2);
	}
	a->pseudo += bpf_htons(6) + bpf_htons(sizeof(a->tcp));
	a->tcp.src_port = bpf_htons(k->dst_port);
	a->tcp.dst_port = bpf_htons(k->src_port);
	a->tcp.seq = bpf_htonl(number >> 32);
	a->tcp.ack = bpf_htonl(number);
	a->tcp.offset = sizeof(a->tcp) / 4 << 4;
	a->tcp.flags = ACK;
	a->tcp.window = 0xffff;
	a->tcp.check = fold(a->pseudo + sum_of(&a->tcp, 5));
}

// is_partial says whether the stack has yet to sum the segment up, which it does when it sends the
// packet: of those only the pseudo header is in the checksum.
static __always_inline int is_partial(struct __sk_buff *ctx, __u32 at)
{
	__be16 before = 0, after = 0;

	if (bpf_skb_load_bytes(ctx, at, &before, 2) || bpf_l4_csum_replace(ctx, at, 0, 1, 2) ||
	    bpf_skb_load_bytes(ctx, at, &after, 2))
		return 0;
	return before == after;
}

// shed takes options of IPv4 or extension headers of IPv6 out of a packet, in front of which the IP
// header begins at some place. What the stack knows of the place of the TCP header stays right so,
// such as from where it has yet to sum up. It does not look behind a tag in the frame, which is the
// second one: that comes out of the frame meanwhile. The result says where the IP header begins.
static __always_inline int shed(struct __sk_buff *skb, __u32 at, __u32 extra)
{
	if (at > 14) {
		if (bpf_skb_vlan_pop(skb))
			return -1;
		at -= 4;
	}
	return bpf_skb_adjust_room(skb, -(__s32)extra, BPF_ADJ_ROOM_NET, 0) ? -1 : (int)at;
}

static __always_inline int send_tcx(struct __sk_buff *skb, struct answer *a, int six, __u32 at,
				    __u32 off)
{
	__u32 ip = six ? sizeof(a->six) : sizeof(a->four), extra = off - at - ip, l3 = at;
	__u32 tci = skb->vlan_tci;
	__be16 proto = skb->vlan_proto;
	int partial = is_partial(skb, off + 16);

	if (partial)
		a->tcp.check = ~fold(a->pseudo);
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
	__u32 all = l3 + ip + sizeof(a->tcp);

	if ((all != skb->len && bpf_skb_change_tail(skb, all, 0)) ||
	    (l3 && bpf_skb_store_bytes(skb, 0, a->link, 12, 0)) ||
	    bpf_skb_store_bytes(skb, l3, six ? (void *)&a->six : &a->four, ip, 0) ||
	    bpf_skb_store_bytes(skb, l3 + ip, &a->tcp, sizeof(a->tcp), 0) ||
	    (l3 != at && bpf_skb_vlan_push(skb, proto, tci)))
		return COOKIE_DROPPED;
	skb->mark = ANSWER_MARK;
	bpf_redirect(skb->ifindex, 0);
	return COOKIE_ANSWERED;
}

// send_xdp has the answer end where the TCP header of the SYN ends: the stack, where it is generic
// XDP, knows that place.
static __always_inline int send_xdp(const struct frame *f, struct answer *a, int six, __u32 at,
				    __u32 off, int hook)
{
	struct xdp_md *ctx = f->ctx;
	__u32 ip = six ? sizeof(a->six) : sizeof(a->four), extra = off - at - ip;
	__u32 all = at + ip + sizeof(a->tcp), bytes = f->len - extra;

	if (all < 60 && at)
		all = bytes < 60 ? bytes : 60; // what an Ethernet frame has at least
	if (bpf_xdp_load_bytes(ctx, 12, a->link + 12, sizeof(a->link) - 12) ||
	    (extra && bpf_xdp_adjust_head(ctx, extra)) ||
	    bpf_xdp_adjust_tail(ctx, (int)(all - bytes)))
		return COOKIE_DROPPED;

	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	void *to = data + (at & 0x3f);

	if (data + sizeof(a->link) > end || to + ip + sizeof(a->tcp) > end)
		return COOKIE_DROPPED;
	if (at)
		__builtin_memcpy(data, a->link, sizeof(a->link));
	if (six)
		__builtin_memcpy(to, &a->six, sizeof(a->six));
	else
		__builtin_memcpy(to, &a->four, sizeof(a->four));
	__builtin_memcpy(to + ip, &a->tcp, sizeof(a->tcp));
	return COOKIE_ANSWERED;
}

// send makes the packet the answer: from at on there are headers of IP and TCP, in front of them
// tags and addresses of the frame. The TCP header of the SYN begins at off.
static __always_inline int send(const struct frame *f, struct answer *a, int six, __u32 at,
				__u32 off, int hook)
{
	return hook == HOOK_TCX ? send_tcx(f->ctx, a, six, at, off) :
				  send_xdp(f, a, six, at, off, hook);
}

#define CARRIED 0xffff

// network is where the header of IP begins, CARRIED within PPPoE or MPLS.
static __always_inline __u32 network(const struct frame *f, int hook)
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
	return off + 2;
}

// is_ours says whether the kernel takes frames for an address. What it says of a packet itself, at
// tc, is never out of date.
static __always_inline int is_ours(const struct cookie_own *o, const struct frame *f, __u64 mac,
				   int hook)
{
	__u32 at = 0, n = o->macs;

	if (!n || mac == o->mac)
		return 1;
	if (hook == HOOK_TCX && ((struct __sk_buff *)f->ctx)->pkt_type == PACKET_HOST)
		return 1;
	for (int i = 0; i < 6 && n > 1; i++) {
		__u32 half = n / 2;

		if (o->others[(at + half) & (OWN_MACS - 1)] <= mac)
			at += half;
		n -= half;
	}
	return o->others[at & (OWN_MACS - 1)] == mac;
}

// is_none says whether an address belongs to no single host of the networks of this machine.
static __always_inline int is_none(const struct cookie_own *o, __u64 hi, __u64 lo)
{
	__u32 at = 0, n = o->nones;
	const struct cookie_address *a;

	for (int i = 0; i < 10 && n > 1; i++) {
		__u32 half = n / 2;

		a = &o->none[(at + half) & (OWN_NONE - 1)];
		if (a->hi < hi || (a->hi == hi && a->lo <= lo))
			at += half;
		n -= half;
	}
	a = &o->none[at & (OWN_NONE - 1)];
	return n && a->hi == hi && a->lo == lo;
}

// is_host says whether an address may be that of one host: not of several, nor of none, nor of this
// machine alone.
static __always_inline int is_host(__u64 hi, __u64 lo, int six)
{
	if (six)
		return hi >> 56 != 0xff && (hi || lo > 1);
	return hi >> 28 != 0xe && hi != 0xffffffff && hi >> 24 != 0 && hi >> 24 != 127;
}

// is_between_hosts says whether a segment goes from one host to one. Ethernet addresses of groups
// have the lowest bit of their first octet set.
static __always_inline int is_between_hosts(const struct key *k, int six)
{
	return !((k->src_mac | k->dst_mac) >> 40 & 1) && is_host(k->src_hi, k->src_lo, six) &&
	       is_host(k->dst_hi, k->dst_lo, six);
}

static __always_inline int judge(const struct frame *f, struct cookie_work *w, __u32 at,
				 __u32 rule, __u64 rate, int hook, int ip)
{
	const struct key *k = &w->key;
	__u8 flags = k->tcp_flags & (FIN | SYN | RST | ACK);
	__u32 zero = 0;
	struct cookie_memory *c = bpf_map_lookup_elem(&cookies, &zero);
	const struct cookie_own *o = bpf_map_lookup_elem(&own, &zero);
	int six = k->class == CLASS(1, TCP, 0);
	__be32 seq;

	// A SYN with FIN or RST begins a connection with stacks that look at SYN first.
	int begins = (flags & (SYN | ACK)) == SYN;

	if (!c || !o || (k->class != CLASS(0, TCP, 0) && !six) || (!begins && flags != RST) ||
	    at == CARRIED || (!ip && !is_ours(o, f, k->dst_mac, hook)))
		return COOKIE_GOES_ON;

	struct cookie_meter *m = &c->meters[rule & (COOKIE_METERS - 1)];
	__u64 now = clock_of(c);
	__u64 second = c->head.second;
	__u64 period = second ? now / (PERIOD * second) : 0;

	if (begins) {
		if (!above(&c->head, m, rate, now) ||
		    is_proven(c, k->src_hi, k->src_lo, k->class, now))
			return COOKIE_GOES_ON;
		// RFC 9293 section 3.9.2.3: what is not between hosts may not be answered; nor is what no
		// client sends.
		if (flags != SYN || !is_between_hosts(k, six) || is_none(o, k->dst_hi, k->dst_lo))
			return COOKIE_DROPPED;
		// What was compared is read again: to keep it takes stack that the program has no room for.
		asm volatile("" ::: "memory");
		make(&w->answer, k, six, number(&c->head, w, period));
		m->last = now;
		return send(f, &w->answer, six, at, k->off, hook);
	}
	if (m->last + 2 * PERIOD * second < now || pull(f, k->off + 4, &seq, 4, hook))
		return COOKIE_GOES_ON;
	seq = bpf_ntohl(seq);
	if (seq != (__u32)number(&c->head, w, period - ((period ^ seq) & 1))) {
		__sync_fetch_and_add(&c->head.forged, 1);
		return COOKIE_GOES_ON;
	}
	prove(c, k->src_hi, k->src_lo, k->class, now);
	__sync_fetch_and_add(&c->head.proven, 1);
	return COOKIE_DROPPED;
}

static __always_inline int in_xdp(struct xdp_md *ctx, __u32 rule, __u64 rate, int ip,
				  int hook)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};
	__u32 zero = 0;
	struct cookie_work *w = bpf_map_lookup_elem(&work, &zero);

	f.len = hook == HOOK_XDP_FRAGS ? bpf_xdp_get_buff_len(ctx) : f.data_end - f.data;
	if (!w)
		return COOKIE_GOES_ON;
	__builtin_memset(&w->key, 0, sizeof(w->key));
	if (ip ? parse_ip(&f, &w->key, hook) : parse_ethernet(&f, &w->key, hook))
		return COOKIE_GOES_ON;
	return judge(&f, w, ip ? 0 : network(&f, hook), rule, rate, hook, ip);
}

static __always_inline int in_tcx(struct __sk_buff *ctx, __u32 rule, __u64 rate, int ip)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};
	__u32 zero = 0;
	struct cookie_work *w = bpf_map_lookup_elem(&work, &zero);

	if (!w)
		return COOKIE_GOES_ON;
	__builtin_memset(&w->key, 0, sizeof(w->key));
	if (ip ? parse_ip(&f, &w->key, HOOK_TCX) : parse_ethernet(&f, &w->key, HOOK_TCX))
		return COOKIE_GOES_ON;
	return judge(&f, w, ip ? 0 : network(&f, HOOK_TCX), rule, rate, HOOK_TCX, ip);
}

static __noinline int cookie_xdp(struct xdp_md *ctx, __u32 rule, __u64 rate)
{
	return in_xdp(ctx, rule, rate, 0, HOOK_XDP);
}

static __noinline int cookie_xdp_frags(struct xdp_md *ctx, __u32 rule, __u64 rate)
{
	return in_xdp(ctx, rule, rate, 0, HOOK_XDP_FRAGS);
}

static __noinline int cookie_tcx(struct __sk_buff *ctx, __u32 rule, __u64 rate)
{
	return in_tcx(ctx, rule, rate, 0);
}

static __noinline int cookie_xdp_ip(struct xdp_md *ctx, __u32 rule, __u64 rate)
{
	return in_xdp(ctx, rule, rate, 1, HOOK_XDP);
}

static __noinline int cookie_xdp_frags_ip(struct xdp_md *ctx, __u32 rule, __u64 rate)
{
	return in_xdp(ctx, rule, rate, 1, HOOK_XDP_FRAGS);
}

static __noinline int cookie_tcx_ip(struct __sk_buff *ctx, __u32 rule, __u64 rate)
{
	return in_tcx(ctx, rule, rate, 1);
}

// cookie_prove has a source count as proven whose handshake was seen. Of a function whose result is
// always the same clang sets none, which the verifiers of 6.1 and 6.12 refuse.
static __noinline int cookie_prove(__u64 hi, __u64 lo, __u32 class)
{
	__u32 zero = 0;
	struct cookie_memory *c = bpf_map_lookup_elem(&cookies, &zero);

	return c ? prove(c, hi, lo, class, clock_of(c)) : 0;
}

// cookie_proven says whether a source is proven, for rules that ask.
static __noinline int cookie_proven(__u64 hi, __u64 lo, __u32 class)
{
	__u32 zero = 0;
	struct cookie_memory *c = bpf_map_lookup_elem(&cookies, &zero);

	return c ? is_proven(c, hi, lo, class, clock_of(c)) : 0;
}

// These are here only so that the object holds whole programs.
#define ENTRY(section, name, context)                                                              \
	SEC(section)                                                                               \
	int entry_##name(struct context *ctx)                                                      \
	{                                                                                          \
		return cookie_##name(ctx, bpf_get_prandom_u32(), bpf_get_prandom_u32());    \
	}

ENTRY("xdp", xdp, xdp_md)
ENTRY("xdp.frags", xdp_frags, xdp_md)
ENTRY("tc", tcx, __sk_buff)
ENTRY("xdp", xdp_ip, xdp_md)
ENTRY("xdp.frags", xdp_frags_ip, xdp_md)
ENTRY("tc", tcx_ip, __sk_buff)

SEC("tc")
int entry_prove(struct __sk_buff *ctx)
{
	return cookie_prove(bpf_get_prandom_u32(), bpf_get_prandom_u32(), bpf_get_prandom_u32());
}

SEC("tc")
int entry_proven(struct __sk_buff *ctx)
{
	return cookie_proven(bpf_get_prandom_u32(), bpf_get_prandom_u32(), bpf_get_prandom_u32());
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const enum cookie_result *unused_cookie_result __attribute__((unused));
