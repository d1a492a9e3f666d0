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

#define TS_BYTES 188
#define TS_SYNC 0x47
#define TS_MOST 48 // packets of a datagram: 9,024 bytes
#define PIDS 8192
#define PID_NULL 8191
#define PIDS_FOLLOWED 255 // of a flow
#define NO_VLAN 0xffff
#define SEGMENTS 64 // datagrams that the stack has merged into one packet, at most

// Addresses of IPv4 stand in the first 4 bytes.
struct mpegts_key {
	__u8 src[16], dst[16];
	__u16 src_port, dst_port; // as on the wire
	__u16 vlan, inner_vlan;	  // NO_VLAN when there is none
	__u32 six;		  // 1: of IPv6
};

// Where a stream may go that is followed; port 0 is every port.
struct mpegts_group {
	__u8 dst[16];
	__u16 port; // as on the wire
	__u16 six;
};

struct mpegts_pid {
	__u16 pid;
	__u8 cc;
	__u8 known;    // 1: cc is that of a packet of the flow's epoch
	__u8 repeated; // 1: the packet before was a duplicate
	__u8 unused[3];
	__u32 check; // of the packet before
	__u32 epoch;
	__u64 packets;
	__u64 discontinuities; // that nothing declares
	__u64 missing;	       // packets that these skip, by 16 each time at most
	__u64 duplicates;
	__u64 declared;	 // packets with a discontinuity_indicator
	__u64 scrambled; // packets
	__u64 errors;	 // packets with a transport_error_indicator
};

// What is remembered of the PIDs of a flow, under the flow's lock.
struct mpegts_pids {
	__u8 at[PIDS]; // by PID: the index of its place below, 0 without one
	struct mpegts_pid pids[PIDS_FOLLOWED + 1];
};

struct mpegts_flow {
	struct bpf_spin_lock lock;
	__u32 epoch; // what is known of continuity is of one; the next begins anew
	__u8 pids;   // that have a place
	__u8 rtp;    // 1: the datagram before had it
	__u8 type;   // RTP's payload type
	__u8 unused;
	__u32 ssrc;
	__u16 expected;	 // the next sequence number
	__u16 bad;	 // one that would show a restart
	__u64 came;	 // which of the 64 numbers before expected did
	__u64 first, last; // ns of the monotonic clock
	__u64 datagrams; // that were followed
	__u64 packets;	 // of them
	__u64 nulls;	 // of packets, of PID 8191
	__u64 unsynced;	 // packets without a sync byte, not in packets
	__u64 unfollowed; // of packets, of PIDs for which there is no place

	// Sums over the PIDs.
	__u64 discontinuities, missing, duplicates, declared, scrambled, errors;

	__u64 rtp_lost;	    // sequence numbers that were skipped
	__u64 rtp_late;	    // of these, which came later
	__u64 rtp_restarts; // sequences that begin anew
	__u64 repeated;	    // datagrams that came before: not followed again
	__u64 strange;	    // datagrams of other lengths or without any sync byte
	__u64 fragments;    // first fragments of datagrams, which are not followed

	__u64 silences;	   // pauses of at least `silence`
	__u64 silent;	   // ns of these
	__u64 longest;	   // ns of the longest pause of any length

	// The delay factor of the current window, and of earlier ones.
	__u64 begun;	  // ns
	__u64 window_bytes;
	__s64 least, most; // ns of the virtual buffer
	__u64 byte_time;  // ns for a byte at the media rate, times 2^16; 0 is unknown
	__u64 delay;	  // ns, of the last whole window
	__u64 delay_most; // of any
	__u64 windows;
	__u64 faults;	  // before the window
	__u64 pcr_first, pcr_last; // in 27 MHz, and where in the stream they stand:
	__u64 first_at, last_at;   // bytes
	__u16 pcr_pid;		   // NO_PID: none was seen
	__u8 pcrs;		   // in the window: none, one, 2 is more
	__u8 rate_by;		   // enum mpegts_rate
	__u32 data_check;	   // of the datagram before
};

#define NO_PID 0xffff

// The sources of byte_time.
enum mpegts_rate { RATE_UNKNOWN, RATE_GIVEN, RATE_PCR, RATE_ARRIVAL };

struct mpegts_totals {
	__u64 fec;	 // datagrams of RTP with parity of others
	__u64 fragments; // that are not the first
	__u64 unplaced;	 // datagrams of streams for which there is no place
};

// What one packet of a datagram says.
struct mpegts_packet {
	__u64 pcr;
	__u32 check;
	__u16 pid;
	__u8 cc;
	__u8 is;
};
enum mpegts_is {
	IS_SYNCED = 1,
	IS_PAYLOAD = 2,
	IS_DECLARED = 4,
	IS_PCR = 8,
	IS_SCRAMBLED = 16,
	IS_ERROR = 32,
};

struct mpegts_cpu {
	struct mpegts_packet packets[TS_MOST];
	__u8 copy[TS_BYTES + 4]; // of a packet that does not lie in the first buffer
	// In memory, since the verifier knows nothing of numbers that are read from memory. Otherwise
	// it would walk the code behind a loop once for each number of packets.
	__u32 n, synced;
};

// The loader sizes the maps of streams, fills the queue, and takes back what has gone.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct mpegts_key);
	__type(value, __u32);
} streams SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mpegts_flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mpegts_pids);
} pids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct mpegts_group);
	__type(value, __u8);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mpegts_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mpegts_totals);
} totals SEC(".maps");

const volatile __u32 ether = 1;	  // frames begin with Ethernet
const volatile __u32 chosen = 0;  // only streams to groups are followed
const volatile __u32 discard = 0; // XDP: datagrams of streams end here
const volatile __u64 window = 1000000000; // ns
const volatile __u64 silence = 1000000000; // ns
const volatile __u64 given_byte_time = 0; // of every stream; 0: by PCR, or by what arrives

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

// sequence follows RTP's sequence numbers and says whether the datagram is the next; others are
// late, or came before, and are not followed: what they lack was counted when it did not come.
static __always_inline int sequence(struct mpegts_flow *f, __u32 ssrc, __u16 seq, __u8 type)
{
	__u16 ahead = seq - f->expected, back = f->expected - seq;

	f->type = type;
	if (!f->rtp || f->ssrc != ssrc) {
		if (f->rtp)
			f->rtp_restarts++;
		f->rtp = 1;
		f->ssrc = ssrc;
		f->came = 0; // packets of before that arrive from here on are late
	} else if (ahead < 0x8000) {
		f->rtp_lost += ahead;
		f->came = ahead < 64 ? f->came << ahead : 0;
	} else if (back <= 64) {
		__u64 bit = 1ull << (back - 1 & 63);

		if (f->came & bit)
			f->repeated++;
		else
			f->rtp_late++;
		f->came |= bit;
		f->bad = seq;
		return 0;
	} else if (seq != f->bad) {
		f->bad = seq + 1;
		f->rtp_late++;
		return 0;
	} else {
		f->rtp_restarts++;
		f->came = 0;
		f->epoch++; // the datagram before was not followed
	}
	f->came = f->came << 1 | 1;
	f->expected = seq + 1;
	f->bad = f->expected; // which is not one of a restart
	return 1;
}

// follow follows one packet of a flow.
static __always_inline void follow(struct mpegts_flow *f, struct mpegts_pids *all,
				   const struct mpegts_packet *t)
{
	__u32 at = all->at[t->pid & (PIDS - 1)], cc = t->cc, expected;
	struct mpegts_pid *p;

	f->packets++;
	if ((t->pid & (PIDS - 1)) == PID_NULL) {
		f->nulls++;
		return;
	}
	if (!at) {
		if (f->pids == PIDS_FOLLOWED) {
			f->unfollowed++;
			return;
		}
		at = ++f->pids;
		all->at[t->pid & (PIDS - 1)] = at;
		all->pids[at & 255].pid = t->pid;
	}
	p = &all->pids[at & 255];
	p->packets++;
	// Without branches, which the verifier would follow in all their combinations.
	p->scrambled += t->is / IS_SCRAMBLED & 1;
	f->scrambled += t->is / IS_SCRAMBLED & 1;
	p->errors += t->is / IS_ERROR & 1;
	f->errors += t->is / IS_ERROR & 1;
	p->declared += t->is / IS_DECLARED & 1;
	f->declared += t->is / IS_DECLARED & 1;
	expected = p->cc + (t->is / IS_PAYLOAD & 1) & 15;
	if (!p->known || p->epoch != f->epoch) {
		if (t->is & IS_ERROR)
			return;
		p->known = 1;
		p->epoch = f->epoch;
	} else if (t->is & IS_DECLARED) {
		// its counter may be any
	} else if (t->is & IS_PAYLOAD && cc == p->cc && t->check == p->check) {
		p->duplicates++;
		f->duplicates++;
		if (p->repeated) { // two are allowed, and not three
			p->discontinuities++;
			f->discontinuities++;
		}
		p->repeated = 1;
		return;
	} else if (cc != expected) {
		__u32 missing = cc - expected & 15;

		if (t->is & IS_ERROR) // which may be in the counter or the PID
			return;
		p->discontinuities++;
		f->discontinuities++;
		p->missing += missing;
		f->missing += missing;
	}
	p->repeated = 0;
	p->cc = cc;
	p->check = t->check;
}

// faults are those by which bytes between two PCRs are missing.
static __always_inline __u64 faults(const struct mpegts_flow *f)
{
	return f->discontinuities + f->rtp_lost + f->unsynced + f->fragments;
}

// next_window ends the window of the delay factor, and finds the media rate of the next: by PCRs
// where these are whole, else by what has arrived.
static __always_inline void next_window(struct mpegts_flow *f, __u64 t)
{
	const __u64 wraps = (1ull << 33) * 300;
	__u64 lasted = t - f->begun;

	if (lasted < 2 * window) {
		if (f->byte_time) {
			f->delay = f->most - f->least;
			if (f->delay > f->delay_most)
				f->delay_most = f->delay;
			f->windows++;
		}
		if (given_byte_time) {
			f->byte_time = given_byte_time;
			f->rate_by = RATE_GIVEN;
		} else if (f->pcrs == 2 && f->faults == faults(f)) {
			__u64 ticks = f->pcr_last - f->pcr_first;
			__u64 bytes = f->last_at - f->first_at;

			if (f->pcr_last < f->pcr_first)
				ticks += wraps;
			// A PCR far from the time that has passed is of another clock, or of one that was set
			// anew.
			if (bytes && ticks * 1000 / 27 < 2 * lasted &&
			    ticks * 1000 / 27 > lasted / 2) {
				f->byte_time = (ticks * 1000 / 27 << 16) / bytes;
				f->rate_by = RATE_PCR;
			}
		} else if (f->window_bytes && f->rate_by != RATE_PCR) {
			f->byte_time = (lasted << 16) / f->window_bytes;
			f->rate_by = RATE_ARRIVAL;
		}
	}
	if (f->pcrs == 2) {
		f->pcr_first = f->pcr_last;
		f->first_at = f->last_at;
		f->pcrs = 1;
	} else { // its PID has gone
		f->pcr_pid = NO_PID;
		f->pcrs = 0;
		if (f->rate_by == RATE_PCR)
			f->rate_by = RATE_UNKNOWN;
	}
	f->faults = faults(f);
	f->begun = t;
	f->window_bytes = 0;
	f->least = f->most = 0;
}

// arrive puts the bytes of a datagram into the virtual buffer of RFC 4445: its level is the bytes
// that came, less those that the media rate takes since the window began.
static __always_inline void arrive(struct mpegts_flow *f, __u64 t, __u32 bytes)
{
	__s64 level;

	if (!f->begun) {
		f->begun = t;
		f->pcr_pid = NO_PID;
		f->byte_time = given_byte_time;
		f->rate_by = given_byte_time ? RATE_GIVEN : RATE_UNKNOWN;
	} else if (t - f->begun >= window) {
		next_window(f, t);
	}
	level = (__s64)(f->window_bytes * f->byte_time >> 16) - (__s64)(t - f->begun);
	if (level < f->least)
		f->least = level;
	f->window_bytes += bytes;
	level = (__s64)(f->window_bytes * f->byte_time >> 16) - (__s64)(t - f->begun);
	if (level > f->most)
		f->most = level;
}

// clock notes a PCR that stands so many bytes from the stream's beginning.
static __always_inline void clock(struct mpegts_flow *f, const struct mpegts_packet *t, __u64 at)
{
	if (f->pcr_pid == NO_PID)
		f->pcr_pid = t->pid;
	if (f->pcr_pid != t->pid)
		return;
	if (t->is & IS_DECLARED || !f->pcrs) {
		f->pcr_first = t->pcr;
		f->first_at = at;
		f->pcrs = 1;
	} else {
		f->pcrs = 2;
	}
	f->pcr_last = t->pcr;
	f->last_at = at;
}

// pause notes how long nothing has come.
static __always_inline void pause(struct mpegts_flow *f, __u64 t)
{
	__u64 paused = t - f->last;

	if (!f->first) {
		f->first = t;
		f->last = t;
		return;
	}
	// A CPU that was a little behind another has nothing new to say.
	if ((__s64)paused <= 0)
		return;
	f->last = t;
	if (paused > f->longest)
		f->longest = paused;
	if (paused >= silence) {
		f->silences++;
		f->silent += paused;
	}
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
