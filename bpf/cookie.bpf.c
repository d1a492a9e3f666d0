// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a cookie does to a TCP segment. The answer to a SYN is the one of a host that still has an
// old connection between these ports: an ACK of a number that the client never sent (RFC 9293
// section 3.5.1, figure 9). The number is a keyed hash of the addresses, the ports and the time. A
// real client resets that old connection by a RST with the number (section 3.10.7.3), and then
// repeats its SYN. So a SYN takes no memory, and the connection that follows is between client and
// listener alone. Package cookie takes the functions out of this object.
#include "reply.h"

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define ACK 0x10

#define PERIOD 64 // seconds for which a number is given; it holds for one period more

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

static __always_inline void make(struct answer *a, const struct key *k, int six, __u64 number)
{
	wrap(a, k, six, 6, sizeof(a->tcp));
	a->tcp.src_port = bpf_htons(k->dst_port);
	a->tcp.dst_port = bpf_htons(k->src_port);
	a->tcp.seq = bpf_htonl(number >> 32);
	a->tcp.ack = bpf_htonl(number);
	a->tcp.offset = sizeof(a->tcp) / 4 << 4;
	a->tcp.flags = ACK;
	a->tcp.window = 0xffff;
	a->tcp.check = fold(a->pseudo + sum_of(&a->tcp, 5));
}

static __always_inline int judge(const struct frame *f, struct cookie_work *w, __u32 at, int hook,
				 int ip)
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
	    at == CARRIED || (!ip && !is_ours(o, w, f, hook)))
		return COOKIE_GOES_ON;

	struct meter *m = &c->meters[*(volatile __u32 *)&w->rule & (COOKIE_METERS - 1)];
	__u64 now = clock_of(c);
	__u64 second = c->head.second;
	__u64 period = second ? now / (PERIOD * second) : 0;

	if (begins) {
		if (!above(c->head.second, m, *(volatile __u64 *)&w->rate, now) ||
		    is_proven(c, k->src_hi, k->src_lo, k->class, now))
			return COOKIE_GOES_ON;
		// RFC 9293 section 3.9.2.3: only packets between two hosts may be answered. SYNs that no
		// client sends are not answered either.
		if (flags != SYN || !is_between_hosts(k, six) || is_none(o, w))
			return COOKIE_DROPPED;
		m->last = now;
		// The compared values are read again: the stack has no room to keep them.
		asm volatile("" ::: "memory");
		make(&w->answer, k, six, number(&c->head, w, period));
		return send(f, w, &w->answer.tcp.check, six, at, k->off, HEADERS, 0, hook);
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

static __always_inline int in_frame(struct frame f, __u32 rule, __u64 rate, int hook, int ip)
{
	struct cookie_work *w = decoded(&f, rule, rate, 0, hook, ip);

	if (!w)
		return COOKIE_GOES_ON;
	__u32 at = ip ? 0 : network(&f, w, hook);

	f = again(&f, hook);
	return judge(&f, w, at, hook, ip);
}

#define FUNCTION(name, context, frame, hook, ip)                                                   \
	static __noinline int cookie_##name(struct context *ctx, __u32 rule, __u64 rate)           \
	{                                                                                          \
		return in_frame(frame, rule, rate, hook, ip);                                      \
	}

EACH_HOOK(FUNCTION)

// cookie_prove marks a source as proven after its handshake. It returns a result that no caller
// reads: if the result were constant, clang would not set R0, which the verifiers of 6.1 and 6.12
// refuse.
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
