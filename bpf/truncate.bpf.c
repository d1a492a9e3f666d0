// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a cookie does to a DNS query over UDP. The answer has the question, no records and the bit
// TC (RFC 1035 section 4.1.1): the client asks again over TCP (RFC 7766 section 5), whose handshake
// proves it. The answer is never longer than the query. Nothing is kept of a query. Package cookie
// takes the functions out of this object. They are called for queries that package names has found
// to be well-formed.
#include "reply.h"

#define QR 0x80 // and the other bits of the flags
#define TC 0x02
#define RD 0x01
#define CD 0x10 // in the second byte

#define MAX_LABEL 63
#define MAX_NAME 254   // without the last, empty label
#define QUESTION_MORE 5 // that label, type and class
#define OPT 11		// without options: root, type, size, flags, length
#define SIZE 1232	// what the answer says of itself by EDNS (DNS Flag Day 2020)

// question returns the length of the question section in bytes, 0 without a valid one.
static __always_inline __u32 question(struct cookie_work *w, __u32 there)
{
	__u32 at = 0;

	for (int i = 0; i < 128; i++) {
		at = forget(&w->slots[1], at);
		if (at > MAX_NAME)
			return 0;
		__u8 bytes = w->text[at & (TEXT - 1)];

		if (!bytes)
			return at + QUESTION_MORE <= there ? at + QUESTION_MORE : 0;
		if (bytes > MAX_LABEL)
			return 0;
		at += 1 + bytes;
	}
	return 0;
}

// make makes the answer to a query whose header is in w->words, with n bytes of text.
static __always_inline void make(struct cookie_work *w, int six, __u32 n, __u32 edns)
{
	const struct key *k = &w->key;
	const __u8 *query = (void *)w->words;
	struct answer *a = &w->answer;
	struct message *m = &a->message;

	wrap(a, k, six, 17, HEADERS + n);
	m->src_port = bpf_htons(k->dst_port);
	m->dst_port = bpf_htons(k->src_port);
	m->len = bpf_htons(HEADERS + n);
	m->id = *(const __be16 *)query;
	m->flags = QR | TC | (query[2] & RD);
	m->more = query[3] & CD;
	m->questions = bpf_htons(1);
	m->additional = bpf_htons(edns);

	__u64 sum = (__u32)bpf_csum_diff(0, 0, (void *)w->text, (n + 3) & 0x1fc, 0);

	m->check = fold(a->pseudo + sum_of(m, 5) + sum);
	if (!m->check)
		m->check = 0xffff; // 0 is for none (RFC 768)
}

static __always_inline int judge(const struct frame *f, struct cookie_work *w, __u32 at, int hook,
				 int ip)
{
	const struct key *k = &w->key;
	__u32 zero = 0, there, n;
	struct cookie_memory *c = bpf_map_lookup_elem(&cookies, &zero);
	const struct cookie_own *o = bpf_map_lookup_elem(&own, &zero);
	int six = k->class == CLASS(1, UDP, 0);

	if (!c || !o || (k->class != CLASS(0, UDP, 0) && !six) || at == CARRIED ||
	    (!ip && !is_ours(o, w, f, hook)))
		return COOKIE_GOES_ON;

	struct meter *m = &c->meters[*(volatile __u32 *)&w->rule & (COOKIE_METERS - 1)];
	__u64 now = clock_of(c);

	if (!above(c->head.second, m, *(volatile __u64 *)&w->rate, now) ||
	    is_proven(c, k->src_hi, k->src_lo, CLASS(six, TCP, 0), now))
		return COOKIE_GOES_ON;
	if (!is_between_hosts(k, six) || is_none(o, w))
		return COOKIE_DROPPED;
	asm volatile("" ::: "memory"); // as in cookie.bpf.c
	if (pull(f, k->off + 4, w->text, 2, hook) || pull(f, k->off + 8, w->words, 12, hook))
		return COOKIE_DROPPED; // never
	there = (w->text[0] << 8 | w->text[1]) - HEADERS;
	there = forget(&w->slots[0], there > MOST_TEXT ? MOST_TEXT : there);
	if (there < QUESTION_MORE || there > MOST_TEXT ||
	    (hook == HOOK_TCX ?
		     bpf_skb_load_bytes(f->ctx, k->off + HEADERS, w->text, known_size(there)) :
		     bpf_xdp_load_bytes(f->ctx, k->off + HEADERS, w->text, known_size(there))))
		return COOKIE_DROPPED; // never
	__u32 edns = *(volatile __u32 *)&w->detail;

	n = forget(&w->slots[0], question(w, there));
	if (!n)
		return COOKIE_DROPPED; // never
	if (edns) {
		if (n > MOST_TEXT - OPT)
			return COOKIE_DROPPED; // never
		__u8 *opt = w->text + known_size(n);

		opt[3] = SIZE >> 8;
		opt[4] = SIZE & 0xff;
		opt[5] = opt[6] = 0;
		opt[7] &= 0x80; // DO
		opt[8] = opt[9] = opt[10] = 0;
		n += OPT;
	}
	n = forget(&w->slots[0], n);
	if (n > MOST_TEXT)
		return COOKIE_DROPPED; // never
	__u8 *behind = w->text + known_size(n);

	behind[0] = behind[1] = behind[2] = 0; // the sum takes words
	make(w, six, n, edns);
	return send(f, w, &w->answer.message.check, six, at, k->off, HEADERS, n, hook);
}

static __always_inline int in_frame(struct frame f, __u32 rule, __u64 rate, __u32 edns, int hook,
				    int ip)
{
	struct cookie_work *w = decoded(&f, rule, rate, edns, hook, ip);

	if (!w)
		return COOKIE_GOES_ON;
	__u32 at = ip ? 0 : network(&f, w, hook);

	f = again(&f, hook);
	return judge(&f, w, at, hook, ip);
}

#define FUNCTION(name, context, frame, hook, ip)                                                   \
	static __noinline int truncate_##name(struct context *ctx, __u32 rule, __u64 rate,         \
					      __u32 edns)                                          \
	{                                                                                          \
		return in_frame(frame, rule, rate, edns, hook, ip);                                \
	}

EACH_HOOK(FUNCTION)

// These are here only so that the object holds whole programs.
#define ENTRY(section, name, context)                                                              \
	SEC(section)                                                                               \
	int entry_##name(struct context *ctx)                                                      \
	{                                                                                          \
		return truncate_##name(ctx, bpf_get_prandom_u32(), bpf_get_prandom_u32(),          \
				       bpf_get_prandom_u32() & 1);                                 \
	}

ENTRY("xdp", xdp, xdp_md)
ENTRY("xdp.frags", xdp_frags, xdp_md)
ENTRY("tc", tcx, __sk_buff)
ENTRY("xdp", xdp_ip, xdp_md)
ENTRY("xdp.frags", xdp_frags_ip, xdp_md)
ENTRY("tc", tcx_ip, __sk_buff)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
