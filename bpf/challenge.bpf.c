// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a cookie does to an A2S query. The answer is the one by which servers ask for a number: the
// client sends its query again, with the number behind it, and that proves its flow (echo.bpf.c).
// The number is made of the flow, the time and a secret key. Nothing is kept of a query, and the
// answer is never longer. Package cookie takes the functions out of this object. They are called
// for queries of flows that are not proven.
#include "a2s.h"
#include "echo.h"
#include "reply.h"

#define CHALLENGE 9 // bytes of the answer

// flow_in hashes the flow of a packet that arrives.
static __always_inline __u64 flow_in(const struct echo_head *e, const struct key *k, int six)
{
	const struct flow_head *h = (const struct flow_head *)e;
	__u64 sum = h->start;

	if (six) {
		sum = flow_piece(h, sum, 0, k->dst_hi >> 32);
		sum = flow_piece(h, sum, 1, k->dst_hi);
		sum = flow_piece(h, sum, 2, k->dst_lo >> 32);
		sum = flow_piece(h, sum, 3, k->dst_lo);
		sum = flow_piece(h, sum, 4, k->src_hi >> 32);
		sum = flow_piece(h, sum, 5, k->src_hi);
		sum = flow_piece(h, sum, 6, k->src_lo >> 32);
		sum = flow_piece(h, sum, 7, k->src_lo);
	} else {
		sum = flow_piece(h, sum, 0, k->dst_hi);
		sum = flow_piece(h, sum, 4, k->src_hi);
	}
	return flow_mix(h, sum, (__u32)k->dst_port << 16 | k->src_port, 17 | six << 8);
}

// make makes the answer that gives a number.
static __always_inline void make(struct cookie_work *w, int six, __u32 number)
{
	const struct key *k = &w->key;
	struct answer *a = &w->answer;
	struct message *m = &a->message;
	__u32 *words = (void *)w->text;

	wrap(a, k, six, 17, UDP_HEADER + CHALLENGE);
	m->src_port = bpf_htons(k->dst_port);
	m->dst_port = bpf_htons(k->src_port);
	m->len = bpf_htons(UDP_HEADER + CHALLENGE);
	words[0] = 0xffffffff;
	words[1] = A2S_CHALLENGE | number << 8;
	words[2] = number >> 24;
	m->check = fold(a->pseudo + sum_of(m, 2) + sum_of(words, 3));
	if (!m->check)
		m->check = 0xffff; // 0 is for none (RFC 768)
}

static __always_inline int judge(const struct frame *f, struct cookie_work *w, __u32 at, int hook,
				 int ip)
{
	const struct key *k = &w->key;
	__u32 zero = 0;
	struct cookie_memory *c = bpf_map_lookup_elem(&cookies, &zero);
	const struct cookie_own *o = bpf_map_lookup_elem(&own, &zero);
	struct echo_memory *m = bpf_map_lookup_elem(&echoes, &zero);
	int six = k->class == CLASS(1, UDP, 0);

	if (!c || !o || !m || (k->class != CLASS(0, UDP, 0) && !six) || at == CARRIED ||
	    (!ip && !is_ours(o, w, f, hook)))
		return COOKIE_GOES_ON;

	struct meter *rate = &c->meters[*(volatile __u32 *)&w->rule & (COOKIE_METERS - 1)];

	if (!above(c->head.second, rate, *(volatile __u64 *)&w->rate, clock_of(c)))
		return COOKIE_GOES_ON;
	if (!is_between_hosts(k, six) || is_none(o, w))
		return COOKIE_DROPPED;
	asm volatile("" ::: "memory"); // as in cookie.bpf.c
	__u32 value = number(&m->head, flow_in(&m->head, k, six), number_period(m));

	note_given(tally_of(m, *(volatile __u32 *)&w->detail), value >> 22);
	make(w, six, value);
	return send(f, w, &w->answer.message.check, six, at, k->off, UDP_HEADER, CHALLENGE, hook);
}

static __always_inline int in_frame(struct frame f, __u32 rule, __u64 rate, __u32 tally, int hook,
				    int ip)
{
	struct cookie_work *w = decoded(&f, rule, rate, tally, hook, ip);

	if (!w)
		return COOKIE_GOES_ON;
	__u32 at = ip ? 0 : network(&f, w, hook);

	f = again(&f, hook);
	return judge(&f, w, at, hook, ip);
}

#define FUNCTION(name, context, frame, hook, ip)                                                   \
	static __noinline int challenge_##name(struct context *ctx, __u32 rule, __u64 rate,        \
					       __u32 tally)                                        \
	{                                                                                          \
		return in_frame(frame, rule, rate, tally, hook, ip);                               \
	}

EACH_HOOK(FUNCTION)

// These are here only so that the object holds whole programs.
#define ENTRY(section, name, context)                                                              \
	SEC(section)                                                                               \
	int entry_##name(struct context *ctx)                                                      \
	{                                                                                          \
		return challenge_##name(ctx, bpf_get_prandom_u32(), bpf_get_prandom_u32(),         \
					bpf_get_prandom_u32());                                    \
	}

ENTRY("xdp", xdp, xdp_md)
ENTRY("xdp.frags", xdp_frags, xdp_md)
ENTRY("tc", tcx, __sk_buff)
ENTRY("xdp", xdp_ip, xdp_md)
ENTRY("xdp.frags", xdp_frags_ip, xdp_md)
ENTRY("tc", tcx_ip, __sk_buff)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
