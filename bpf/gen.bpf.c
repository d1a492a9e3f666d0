// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The packet generator: run over live frames (BPF_F_TEST_XDP_LIVE_FRAMES) it writes the next
// packet of a plan into each and redirects it to a device. What to send is constant data, filled
// in by package gen before loading, so that the verifier takes out what a plan does not use; no
// system call is made per packet or batch.
//
// Pages come back with whatever the receiver made of them, so all headers are written each time.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_HEADER 96  // Ethernet 14, two tags 8, IPv6 40, Fragment 8, TCP 20, rounded up to 8
#define MAX_RANGES 64  // ranges of sources
#define MAX_SHAPES 256 // packet lengths
#define PORTS 65536
#define ROUNDS 4
#define MAX_WALK 64
#define NONE 0xffff // an offset that is not there
#define GAPS 40     // log2 buckets of ns
#define BATCH 64    // frames between clock readings of an unpaced run

// A range of sources: indices from start on are addresses from base on. An IPv6 prefix with more
// than 56 host bits has the bits above filled from a hash of the index, under fill.
struct source {
	__u64 start;
	__u64 hi, lo; // base address in host order; IPv4 in the lower half of lo
	__u64 fill_hi, fill_lo;
};

// What depends on the length of a packet.
struct shape {
	__u32 frame; // bytes
	__u16 ip_len; // total length, or payload length, as it stands in the header
	__u16 udp_len; // as it stands in the header
	__u32 ip_sum; // sums of all that stays the same, not folded
	__u32 l4_sum;
};

struct layout {
	__u32 ifindex;
	__u16 header; // bytes of the template that are headers
	__u16 ip; // offset of the IP header
	__u16 ports, udp_len, tag, check; // offsets or NONE
	__u8 ipv6, udp;
	__u8 pseudo; // the checksum covers the addresses
	__u32 nsources, nshapes, nsport, ndport;
	__u32 longest; // bytes of the frame that each page begins as
	__u64 mask, space; // of the source permutation: 2^bits - 1, and the number of sources
	__u32 shift;
	__u64 mul[ROUNDS], add[ROUNDS];
	__u64 interval; // ns between packets times 2^16, 0 for as fast as possible
	__u64 smooth; // least gap in ns while catching up
	__u64 template[MAX_HEADER / 8];
};

// What changes; written by the one thread that runs the program.
struct run {
	__u64 sent, bytes, errors;
	__u64 limit; // stop at this many sent
	__u64 start, deadline; // ns of the monotonic clock
	__u64 last; // time of the last clock reading that sent
	__u64 due; // when the next packet is due, ns since start times 2^16
	__u64 gap_max;
	__u64 source;
	__u32 sport, dport, shape, done;
	__u64 gaps[GAPS];
};

const volatile struct layout plan = {};
const volatile struct source sources[MAX_RANGES] = {};
const volatile struct shape shapes[MAX_SHAPES] = {};

struct run state;
__u16 sports[PORTS]; // network order
__u16 dports[PORTS];

static __always_inline __u64 mix(__u64 x)
{
	x &= plan.mask;
	for (int i = 0; i < ROUNDS; i++) {
		x = (x + plan.add[i]) * plan.mul[i] & plan.mask;
		x ^= x >> plan.shift;
	}
	return x;
}

// permute is a bijection of 0..space-1: one of 0..mask, applied again while it leads outside
// (cycle walking). More than half of 0..mask is inside, so the bound is met once in 2^64 packets.
static __always_inline __u64 permute(__u64 x)
{
	x = mix(x);
	if (plan.space != plan.mask + 1)
		for (int i = 0; i < MAX_WALK && x >= plan.space; i++)
			x = mix(x);
	return x;
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

static __always_inline void note_gap(__u64 gap)
{
	__u32 b = 0;

	if (gap > state.gap_max)
		state.gap_max = gap;
	if (gap >> 32) {
		b = 32;
		gap >>= 32;
	}
	if (gap >> 16) {
		b += 16;
		gap >>= 16;
	}
	if (gap >> 8) {
		b += 8;
		gap >>= 8;
	}
	if (gap >> 4) {
		b += 4;
		gap >>= 4;
	}
	if (gap >> 2) {
		b += 2;
		gap >>= 2;
	}
	b += gap >> 1;
	if (b < GAPS)
		state.gaps[b]++;
}

// due tells whether the next packet goes now.
static __always_inline int due(void)
{
	__u64 now;

	if (state.sent >= state.limit || state.done)
		return 0;
	if (!plan.interval && state.sent % BATCH)
		return 1;
	now = bpf_ktime_get_ns();
	if (now >= state.deadline) {
		state.done = 1;
		return 0;
	}
	if (plan.interval) {
		if (now < state.start || (now - state.start) << 16 < state.due)
			return 0;
		if (now - state.last < plan.smooth)
			return 0;
		state.due += plan.interval;
	}
	if (state.last)
		note_gap(now - state.last);
	state.last = now;
	return 1;
}

static __always_inline __u32 next(__u32 *pos, __u32 n)
{
	__u32 p = *pos;

	*pos = p + 1 < n ? p + 1 : 0;
	return p;
}

// write_source writes the next source address and returns its checksum; *hash gets bits that
// depend on the index.
static __always_inline __u64 write_source(void *ip, __u64 *hash)
{
	__u64 i = permute(state.source), hi, lo;
	__u32 r = 0;

	state.source = state.source + 1 < plan.space ? state.source + 1 : 0;
	if (plan.nsources > 1)
		while (r + 1 < plan.nsources && r + 1 < MAX_RANGES && i >= sources[r + 1].start)
			r++;
	*hash = (i + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
	*hash ^= *hash >> 29;
	r &= MAX_RANGES - 1;
	i -= sources[r].start;
	if (!plan.ipv6) {
		__u32 a = bpf_htonl((__u32)sources[r].lo + (__u32)i);

		*(__u32 *)(ip + 12) = a;
		return a;
	}
	hi = bpf_cpu_to_be64(sources[r].hi | (*hash & sources[r].fill_hi));
	lo = bpf_cpu_to_be64((sources[r].lo | (*hash & sources[r].fill_lo)) + i);
	*(__u64 *)(ip + 8) = hi;
	*(__u64 *)(ip + 16) = lo;
	return (hi >> 32) + (hi & 0xffffffff) + (lo >> 32) + (lo & 0xffffffff);
}

SEC("xdp")
int gen(struct xdp_md *ctx)
{
	const volatile struct shape *shape = &shapes[0];
	__u64 sum, src, hash;
	void *data, *end;
	__u16 check;

	if (!due())
		return XDP_DROP;
	if (plan.nshapes > 1) {
		shape = &shapes[next(&state.shape, plan.nshapes) & (MAX_SHAPES - 1)];
		if (bpf_xdp_adjust_tail(ctx, (int)shape->frame - (int)plan.longest)) {
			state.errors++;
			return XDP_DROP;
		}
	}
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + plan.header > end) {
		state.errors++;
		return XDP_DROP;
	}
#pragma unroll
	for (int i = 0; i < MAX_HEADER / 8; i++)
		if (i * 8 + 8 <= plan.header)
			((__u64 *)data)[i] = plan.template[i];
	if (plan.header & 4)
		*(__u32 *)(data + (plan.header & ~7)) = plan.template[(plan.header / 8) & 15];
	if (plan.header & 2)
		*(__u16 *)(data + (plan.header & ~3)) =
			plan.template[(plan.header / 8) & 15] >> (plan.header & 4 ? 32 : 0);

	src = write_source(data + plan.ip, &hash);
	if (plan.ipv6) {
		*(__u16 *)(data + plan.ip + 4) = shape->ip_len;
	} else {
		__u16 id = (__u16)state.sent;

		*(__u16 *)(data + plan.ip + 2) = shape->ip_len;
		*(__u16 *)(data + plan.ip + 4) = id;
		*(__u16 *)(data + plan.ip + 10) = fold(src + shape->ip_sum + id);
	}
	sum = shape->l4_sum;
	if (plan.pseudo)
		sum += src;
	if (plan.ports != NONE) {
		__u32 ports = sports[next(&state.sport, plan.nsport) & (PORTS - 1)];

		ports |= (__u32)dports[next(&state.dport, plan.ndport) & (PORTS - 1)] << 16;
		*(__u32 *)(data + plan.ports) = ports;
		sum += ports;
	}
	if (plan.udp_len != NONE)
		*(__u16 *)(data + plan.udp_len) = shape->udp_len;
	if (plan.tag != NONE) {
		*(__u32 *)(data + plan.tag) = (__u32)hash;
		sum += (__u32)hash;
	}
	if (plan.check != NONE) {
		check = fold(sum);
		if (plan.udp && !check)
			check = 0xffff; // RFC 768: zero stands for "no checksum"
		*(__u16 *)(data + plan.check) = check;
	}
	state.sent++;
	state.bytes += shape->frame;
	return bpf_redirect(plan.ifindex, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
