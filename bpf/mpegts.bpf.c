// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The monitor of MPEG transport streams: it follows the continuity of each PID of each flow of UDP,
// with or without RTP, and lets every packet go on. Rules of continuity are those of H.222.0
// (ISO/IEC 13818-1) 2.4.3.3 to 2.4.3.5, those of RTP's sequence numbers RFC 3550 A.1, and the delay
// factor is that of RFC 4445.
//
// A datagram is read before its flow is locked: what its packets say lies in the memory of this
// CPU then. So a lock is held for some tens of ns, and no packet is read behind it.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "mpegts_stream.h"

// now is replaced in tests, which have a clock of their own.
static __noinline __u64 now(void)
{
	return bpf_ktime_get_ns();
}

static __always_inline __u32 half(const __u8 *p)
{
	return (__u32)p[0] << 8 | p[1];
}

static __always_inline __u32 word(const __u8 *p)
{
	return half(p) << 16 | half(p + 2);
}

static __always_inline struct mpegts_totals *all(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&totals, &zero);
}

// pull copies n bytes at off.
static __always_inline long pull(void *ctx, __u32 off, void *to, __u32 n, int tc)
{
	return tc ? bpf_skb_load_bytes(ctx, off, to, n) : bpf_xdp_load_bytes(ctx, off, to, n);
}

#define MIX1 0x9e3779b97f4a7c15ull
#define MIX2 0xff51afd7ed558ccdull

// read says what 188 bytes are. The check is of all bytes but those of the PCR, which a duplicate
// may have of its own (2.4.3.3). Two sums, since each waits for its multiplication.
static __always_inline void read(const __u8 *p, struct mpegts_packet *t)
{
	__u32 header = *(const __u32 *)p, is = 0, control = p[3] >> 4 & 3;
	__u64 w = *(const __u64 *)(p + 4), a, b = header;

	if (p[0] == TS_SYNC)
		is |= IS_SYNCED;
	if (p[1] & 0x80)
		is |= IS_ERROR;
	if (p[3] & 0xc0)
		is |= IS_SCRAMBLED;
	if (control & 1)
		is |= IS_PAYLOAD;
	if (control & 2 && p[4]) {
		if (p[5] & 0x80)
			is |= IS_DECLARED;
		if (p[5] & 0x10 && p[4] >= 7) {
			is |= IS_PCR;
			t->pcr = ((__u64)word(p + 6) << 1 | p[10] >> 7) * 300 +
				 (half(p + 10) & 0x1ff);
			w &= 0xffff;
		}
	}
	a = w * MIX1;
#pragma unroll
	for (int i = 1; i < 23; i += 2) {
		b = (b ^ *(const __u64 *)(p + 4 + i * 8)) * MIX2;
		a = (a ^ *(const __u64 *)(p + 12 + i * 8)) * MIX1;
	}
	a ^= b ^ b >> 29;
	t->check = a ^ a >> 32;
	t->pid = half(p + 1) & 0x1fff;
	t->cc = p[3] & 15;
	t->is = is;
}

// read_at reads the packet of a datagram that stands at off, and says whether it has a sync byte;
// -1: it cannot be read.
static __always_inline int read_at(void *ctx, const __u8 *data, const __u8 *end,
				   struct mpegts_cpu *c, __u32 i, __u32 off, int tc)
{
	struct mpegts_packet *t;

	if (!c || i >= TS_MOST)
		return -1;
	t = &c->packets[i];
	if (off < 0x7fff) {
		data += off;
		asm volatile("" : "+r"(data)); // this is what the verifier wants to see compared
		if (data + TS_BYTES <= end) {
			read(data, t);
			return t->is & IS_SYNCED;
		}
	}
	if (pull(ctx, off, c->copy, TS_BYTES, tc))
		return -1;
	read(c->copy, t);
	return t->is & IS_SYNCED;
}

// Global functions are verified once, and not for each packet of each datagram.
__noinline int read_xdp(struct xdp_md *ctx, struct mpegts_cpu *c, __u32 i, __u32 off)
{
	return read_at(ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, c, i, off, 0);
}

__noinline int read_tc(struct __sk_buff *ctx, struct mpegts_cpu *c, __u32 i, __u32 off)
{
	return read_at(ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, c, i, off, 1);
}

// read_all reads the n packets of a datagram, and counts how many have a sync byte; -1: they cannot
// be read.
static __always_inline int read_all(void *ctx, struct mpegts_cpu *c, __u32 off, int tc)
{
	c->synced = 0;
	for (__u32 i = 0; i < TS_MOST; i++) {
		int is;

		if (i >= *(volatile __u32 *)&c->n)
			break;
		is = tc ? read_tc(ctx, c, i, off) : read_xdp(ctx, c, i, off);
		if (is < 0)
			return -1;
		c->synced += is;
		off += TS_BYTES;
	}
	return 0;
}

// place finds the place of a flow, or gives it one if it is a stream.
static __always_inline int place(const struct mpegts_key *k, int stream, __u32 *at)
{
	__u32 *there = bpf_map_lookup_elem(&streams, k), fresh;

	if (there) {
		*at = *there;
		return 1;
	}
	if (!stream)
		return 0;
	if (!bpf_map_pop_elem(&places, &fresh)) {
		if (!bpf_map_update_elem(&streams, k, &fresh, BPF_NOEXIST)) {
			*at = fresh;
			return 1;
		}
		bpf_map_push_elem(&places, &fresh, 0);
		there = bpf_map_lookup_elem(&streams, k); // another CPU was first
		if (there) {
			*at = *there;
			return 1;
		}
	}

	struct mpegts_totals *sum = all();

	if (sum)
		sum->unplaced++;
	return 0;
}

static __always_inline int is_group(const struct mpegts_key *k)
{
	struct mpegts_group g = {.port = k->dst_port, .six = k->six};

	__builtin_memcpy(g.dst, k->dst, 16);
	if (bpf_map_lookup_elem(&groups, &g))
		return 1;
	g.port = 0;
	return bpf_map_lookup_elem(&groups, &g) != 0;
}

// fragmented notes the first fragment of a datagram of a stream that is known, or looks like one.
// Its packets are not followed, and continuity begins anew with the next packet of each PID.
static __always_inline void fragmented(const struct mpegts_key *k, int stream)
{
	struct mpegts_flow *f;
	__u64 t = now();
	__u32 at;

	if (!place(k, stream, &at))
		return;
	f = bpf_map_lookup_elem(&flows, &at);
	if (!f)
		return;
	bpf_spin_lock(&f->lock);
	pause(f, t);
	f->fragments++;
	f->epoch++;
	f->rtp = 0; // the next number is the first, too
	bpf_spin_unlock(&f->lock);
}

struct rtp {
	__u32 is;
	__u32 ssrc;
	__u16 seq;
	__u8 type;
};

#define FEC_HEADER 16 // SMPTE 2022-1 8.4

// rtp_header reads the header of RTP, if there is one, and moves off and len behind it. 0: the
// datagram has parity.
static __always_inline int rtp_header(void *ctx, __u32 *off, __u32 *len, struct rtp *r, int tc)
{
	__u8 h[12], x[5];
	__u32 more, rest = *len;

	r->is = 0;
	if (*len < 12 || pull(ctx, *off, h, sizeof(h), tc) || h[0] >> 6 != 2)
		return 1;
	more = 12 + (h[0] & 15) * 4;
	if (h[0] & 0x10) {
		if (*len < more + 4 || pull(ctx, *off + more, x, 4, tc))
			return 1;
		more += 4 + half(x + 2) * 4;
	}
	if (h[0] & 0x20) {
		if (*len < 13 || pull(ctx, *off + *len - 1, x, 1, tc))
			return 1;
		if (rest < more + x[0])
			return 1;
		rest -= x[0];
	}
	if (rest < more)
		return 1;
	rest -= more;
	// A sync byte may be damaged such that it looks like RTP's version.
	if (*len % TS_BYTES == 0 && rest % TS_BYTES)
		return 1;
	*off += more;
	*len = rest;
	r->type = h[1] & 0x7f;
	r->seq = half(h + 2);
	r->ssrc = word(h + 8);
	r->is = 1;
	// A parity packet has the length of the media packets, behind a header whose E bit is set.
	if (r->type != 33 && *len % TS_BYTES == FEC_HEADER && *len > FEC_HEADER &&
	    !pull(ctx, *off + 4, x, 1, tc) && x[0] & 0x80)
		return 0;
	return 1;
}

// datagram follows what a datagram of UDP holds, and says whether that is a stream.
static __always_inline int datagram(void *ctx, const struct mpegts_key *key, __u32 off, __u32 len,
				    int tc)
{
	// Linux 6.1 takes no key that a function was given.
	struct mpegts_key own = *key, *k = &own;
	struct rtp r;
	struct mpegts_pids *ps;
	struct mpegts_flow *f;
	struct mpegts_cpu *c;
	__u32 zero = 0, n, at, check = 0, strange = 0, counted = 0;
	__u32 synced;
	__u64 t;

	if (!rtp_header(ctx, &off, &len, &r, tc)) {
		struct mpegts_totals *sum = all();

		if (sum)
			sum->fec++;
		return 1;
	}
	n = len / TS_BYTES;
	c = bpf_map_lookup_elem(&cpus, &zero);
	if (!c || !n)
		return 0;
	if (len % TS_BYTES || n > TS_MOST)
		strange = 1;
	// Another length is looked at only where it begins as a stream does.
	c->n = strange ? 1 : n;
	if (read_all(ctx, c, off, tc))
		return 0;
	n = *(volatile __u32 *)&c->n;
	synced = *(volatile __u32 *)&c->synced;
	if (!synced && strange)
		return 0;
	if (!place(k, !strange && synced == n, &at))
		return 0;
	f = bpf_map_lookup_elem(&flows, &at);
	ps = bpf_map_lookup_elem(&pids, &at);
	if (!f || !ps)
		return 0;
	if (strange || !synced) {
		bpf_spin_lock(&f->lock);
		f->strange++;
		bpf_spin_unlock(&f->lock);
		return 1;
	}
	for (__u32 i = 0; i < TS_MOST; i++) {
		if (i >= *(volatile __u32 *)&c->n)
			break;
		check = (check ^ c->packets[i].check) * 0x9e3779b1u;
		if (c->packets[i].is & IS_PAYLOAD && c->packets[i].pid != PID_NULL)
			counted = 1;
	}
	t = now();
	bpf_spin_lock(&f->lock);
	pause(f, t);
	if (r.is) {
		if (!sequence(f, r.ssrc, r.seq, r.type))
			goto out;
	} else {
		f->rtp = 0;
		// The network has brought one again. A sender may repeat one packet, and whatever has no
		// payload or is of the null PID.
		if (f->datagrams && f->data_check == check && n > 1 && counted) {
			f->repeated++;
			goto out;
		}
	}
	f->data_check = check;
	f->datagrams++;
	arrive(f, t, n * TS_BYTES);
	for (__u32 i = 0; i < TS_MOST; i++) {
		const struct mpegts_packet *p = &c->packets[i];

		if (i >= *(volatile __u32 *)&c->n)
			break;
		if (!(p->is & IS_SYNCED)) {
			f->unsynced++;
			continue;
		}
		if (p->is & IS_PCR)
			clock(f, p, (f->packets + f->unsynced) * TS_BYTES);
		follow(f, ps, p);
	}
out:
	bpf_spin_unlock(&f->lock);
	return 1;
}

// Each of the two is verified once, however many datagrams a packet has.
__noinline int datagram_xdp(struct xdp_md *ctx, struct mpegts_key *k, __u32 off, __u32 len)
{
	return k ? datagram(ctx, k, off & 0xffff, len & 0xffff, 0) : 0;
}

__noinline int datagram_tc(struct __sk_buff *ctx, struct mpegts_key *k, __u32 off, __u32 len)
{
	return k ? datagram(ctx, k, off & 0xffff, len & 0xffff, 1) : 0;
}

#define UDP 17
#define MORE_FRAGMENTS 0x2000
#define LATER_FRAGMENT 0x1fff

// A payload of UDP.
struct udp {
	__u32 off, len;
	__u32 first; // 1: it is the beginning of one, in the first of several fragments
};

static __always_inline void later_fragment(void)
{
	struct mpegts_totals *sum = all();

	if (sum)
		sum->fragments++;
}

// decode finds the payload of a UDP datagram. It returns 0 for other frames and truncated ones.
static __always_inline int decode(void *ctx, struct mpegts_key *k, struct udp *u, int tc)
{
	__u32 off = 0, type, left, proto, fragment = 0;
	__u32 whole = tc ? ((struct __sk_buff *)ctx)->len : bpf_xdp_get_buff_len(ctx);
	__u8 h[40], t[4];

	k->vlan = k->inner_vlan = NO_VLAN;
	if (ether) {
		if (pull(ctx, 12, h, 2, tc))
			return 0;
		type = half(h);
		off = 14;
		if (tc && ((struct __sk_buff *)ctx)->vlan_present)
			k->vlan = ((struct __sk_buff *)ctx)->vlan_tci & 0xfff;
		for (int i = 0; i < 2; i++) {
			if (type != 0x8100 && type != 0x88a8)
				break;
			if (pull(ctx, off, t, 4, tc))
				return 0;
			if (k->vlan == NO_VLAN)
				k->vlan = half(t) & 0xfff;
			else
				k->inner_vlan = half(t) & 0xfff;
			type = half(t + 2);
			off += 4;
		}
	} else {
		if (pull(ctx, 0, h, 1, tc))
			return 0;
		type = h[0] >> 4 == 4 ? 0x0800 : h[0] >> 4 == 6 ? 0x86dd : 0;
	}
	if (type == 0x0800) {
		__u32 header;

		if (pull(ctx, off, h, 20, tc))
			return 0;
		header = (h[0] & 15) * 4;
		left = half(h + 2);
		proto = h[9];
		if (h[0] >> 4 != 4 || header < 20 || left < header || off + left > whole ||
		    proto != UDP)
			return 0;
		fragment = half(h + 6) & (MORE_FRAGMENTS | LATER_FRAGMENT);
		__builtin_memcpy(k->src, h + 12, 4);
		__builtin_memcpy(k->dst, h + 16, 4);
		off += header;
		left -= header;
	} else if (type == 0x86dd) {
		if (pull(ctx, off, h, 40, tc) || h[0] >> 4 != 6)
			return 0;
		left = half(h + 4);
		proto = h[6];
		__builtin_memcpy(k->src, h + 8, 16);
		__builtin_memcpy(k->dst, h + 24, 16);
		k->six = 1;
		off += 40;
		if (off + left > whole)
			return 0;
		for (int i = 0; i < 4; i++) {
			__u32 bytes = 8;

			// Hop-by-hop options, routing, destination options, fragment (RFC 8200 4).
			if (proto != 0 && proto != 43 && proto != 60 && proto != 44)
				break;
			if (left < 8 || pull(ctx, off, h, 8, tc))
				return 0;
			if (proto == 44)
				fragment = half(h + 2) >> 3 | (h[3] & 1 ? MORE_FRAGMENTS : 0);
			else
				bytes = 8 + h[1] * 8;
			if (left < bytes)
				return 0;
			proto = h[0];
			off += bytes;
			left -= bytes;
			if (fragment & LATER_FRAGMENT)
				break; // what follows is no header
		}
		if (proto != UDP)
			return 0;
	} else {
		return 0;
	}
	if (fragment & LATER_FRAGMENT) {
		if (chosen) {
			struct mpegts_group g = {.six = k->six};

			__builtin_memcpy(g.dst, k->dst, 16);
			g.port = 0;
			if (!bpf_map_lookup_elem(&groups, &g))
				return 0;
		}
		later_fragment();
		return 0;
	}
	if (left < 8 || pull(ctx, off, h, 8, tc))
		return 0;
	__builtin_memcpy(&k->src_port, h, 2);
	__builtin_memcpy(&k->dst_port, h + 2, 2);
	u->off = off + 8;
	u->len = left - 8;
	u->first = fragment != 0;
	if (u->first)
		return 1;
	if (half(h + 4) < 8 || half(h + 4) > left)
		return tc && ((struct __sk_buff *)ctx)->gso_segs > 1;
	u->len = half(h + 4) - 8;
	return 1;
}

// begins says whether the first bytes of a payload are those of a stream.
static __always_inline int begins(void *ctx, const struct udp *u, int tc)
{
	__u8 h[1];
	__u32 off = u->off, len = u->len;
	struct rtp r;

	if (!rtp_header(ctx, &off, &len, &r, tc) || len <= TS_BYTES)
		return 0;
	if (pull(ctx, off, h, 1, tc) || h[0] != TS_SYNC)
		return 0;
	return !pull(ctx, off + TS_BYTES, h, 1, tc) && h[0] == TS_SYNC;
}

SEC("xdp")
int mpegts_xdp(struct xdp_md *ctx)
{
	struct mpegts_key k = {};
	struct udp u = {};

	if (!decode(ctx, &k, &u, 0) || (chosen && !is_group(&k)))
		return XDP_PASS;
	if (u.first) {
		fragmented(&k, begins(ctx, &u, 0));
		return XDP_PASS;
	}
	return datagram_xdp(ctx, &k, u.off, u.len) && discard ? XDP_DROP : XDP_PASS;
}

SEC("tc")
int mpegts_tc(struct __sk_buff *ctx)
{
	struct mpegts_key k = {};
	struct udp u = {};
	__u32 each;

	if (!decode(ctx, &k, &u, 1) || (chosen && !is_group(&k)))
		return -1; // TCX_NEXT
	if (u.first) {
		fragmented(&k, begins(ctx, &u, 1));
		return -1;
	}
	if (ctx->gso_segs < 2) {
		datagram_tc(ctx, &k, u.off, u.len);
		return -1;
	}
	// The stack has merged several datagrams (GRO): each is gso_size long, except the last.
	u.len = ctx->len - u.off;
	each = ctx->gso_size;
	for (int i = 0; i < SEGMENTS; i++) {
		if (!each || !u.len)
			break;
		if (u.len < each)
			each = u.len;
		datagram_tc(ctx, &k, u.off, each);
		u.off += each;
		u.len -= each;
	}
	return -1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
