// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a shadow notes of a packet: which rule of the policy in force decided, which of its own
// would have, and how. Package shadow takes the functions out of this object.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define SHADOW_CELLS (1 << 12) // pairs of rules that a CPU tells apart
#define SHADOW_PROBES 64       // cells that are looked at for one
#define SHADOW_SETS (1 << 6)   // of samples, by pair
#define SHADOW_WAYS 8	       // flows in one
#define SHADOW_BYTES 128       // of a packet

#define LOST 0xffffffff // in the place of a slot: nobody was asked

// Verdicts, as they stand in a key. The first slots are of malformed frames and redirect nothing.
enum shadow_verdict { SHADOW_REDIRECT, SHADOW_PASS, SHADOW_DROP, SHADOW_ANSWER };

// A key is the slot of the policy in force and the verdict (slot << 2 | verdict), 32 bits, and
// above them the same of the shadow; 0 there where the shadow was not asked.
struct shadow_cell {
	__u64 key; // 0 of a free one
	__u64 packets;
	__u64 bytes;
};

struct shadow_sample {
	__u64 key;
	__u64 last;    // jiffies
	__u64 packets; // of the flow, since it has the place
	__u32 flow;    // a hash
	__u32 bytes;   // of the whole frame
	__u8 packet[SHADOW_BYTES];
};

// Each CPU has its own, and nobody else writes there.
struct shadow_cpu {
	__u64 untold, untold_bytes; // packets of pairs that found no cell
	__u8 look[SHADOW_BYTES + 32];
	struct shadow_cell cells[SHADOW_CELLS];
	struct shadow_sample samples[SHADOW_SETS][SHADOW_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // number of CPUs; the loader fills it in
	__type(key, __u32);
	__type(value, struct shadow_cpu);
} pairs SEC(".maps");

#define GOLDEN 0x9e3779b97f4a7c15ULL // 2^64 / golden ratio: Knuth, volume 3, section 6.4

static __always_inline void count(struct shadow_cpu *cpu, __u64 key, __u32 bytes)
{
	__u32 at = key * GOLDEN >> 52; // 12 bits

	for (int i = 0; i < SHADOW_PROBES; i++) {
		struct shadow_cell *c = &cpu->cells[(at + i) & (SHADOW_CELLS - 1)];

		if (c->key != key) {
			if (c->key)
				continue;
			c->key = key;
		}
		c->packets++;
		c->bytes += bytes;
		return;
	}
	cpu->untold++;
	cpu->untold_bytes += bytes;
}

static __always_inline __u32 mix(__u32 hash, const __u8 *bytes)
{
	return (hash ^ *(const __u32 *)bytes) * 0x01000193; // FNV-1a, by words
}

// flow hashes what tells flows apart. It only chooses samples, so it need not know all headers.
static __always_inline __u32 flow(const __u8 *look, int ip)
{
	__u32 hash = 0x811c9dc5, at = 0;
	__u16 type = 0;

	if (!ip) {
		type = look[12] << 8 | look[13];
		at = 14;
		for (int i = 0; i < 2; i++) {
			if (type != 0x8100 && type != 0x88a8)
				break;
			at &= 31;
			type = look[at + 2] << 8 | look[at + 3];
			at += 4;
		}
	} else {
		type = look[0] >> 4 == 4 ? 0x0800 : 0x86dd;
	}
	at &= 31;
	if (type == 0x0800) {
		hash = mix(mix(hash, look + at + 12), look + at + 16) ^ look[at + 9];
		if (look[at] == 0x45)
			hash = mix(hash, look + at + 20);
		return hash;
	}
	if (type == 0x86dd) {
		for (int i = 0; i < 8; i++)
			hash = mix(hash, look + at + 8 + 4 * i);
		return mix(hash ^ look[at + 6], look + at + 40);
	}
	for (int i = 0; i < 8; i++)
		hash = mix(hash, look + 4 * i);
	return hash;
}

// sample finds the place for a flow: its own, else that of the flow whose packet was longest ago.
// A place whose flow has had a packet in this jiffy stays, so that a flood costs no copies.
static __always_inline void sample(struct shadow_cpu *cpu, __u64 key, __u32 hash, __u32 bytes)
{
	struct shadow_sample *set = cpu->samples[key * GOLDEN >> 58], *oldest = set;
	__u64 now = bpf_jiffies64();

	for (int i = 0; i < SHADOW_WAYS; i++) {
		struct shadow_sample *s = &set[i];

		if (s->key == key && s->flow == hash) {
			s->last = now;
			s->packets++;
			return;
		}
		if (s->last < oldest->last)
			oldest = s;
	}
	if (oldest->last == now)
		return;
	oldest->key = 0; // whoever reads it meanwhile leaves it out
	oldest->last = now;
	oldest->packets = 1;
	oldest->flow = hash;
	oldest->bytes = bytes;
	__builtin_memcpy(oldest->packet, cpu->look, SHADOW_BYTES);
	*(volatile __u64 *)&oldest->key = key;
}

static __always_inline __u32 word(__u32 code, int tcx)
{
	if (tcx) // include/uapi/linux/pkt_cls.h: TC_ACT_SHOT, TC_ACT_REDIRECT
		return code == 2 ? SHADOW_DROP : code == 7 ? SHADOW_ANSWER : SHADOW_PASS;
	if (code == XDP_REDIRECT)
		return SHADOW_REDIRECT;
	return code == XDP_PASS ? SHADOW_PASS : code == XDP_TX ? SHADOW_ANSWER : SHADOW_DROP;
}

// note counts a packet, and reports whether it is a sample of what differs. judged and would are
// slot and code of the two policies.
static __always_inline struct shadow_cpu *note(__u64 judged, __u64 would, __u32 bytes, int tcx,
					       __u64 *key)
{
	__u32 id = bpf_get_smp_processor_id();
	struct shadow_cpu *cpu = bpf_map_lookup_elem(&pairs, &id);
	__u32 is = word(judged >> 32, tcx), other = is;

	if (!cpu)
		return 0;
	*key = (__u32)judged << 2 | is;
	if ((__u32)would != LOST) {
		other = word(would >> 32, tcx);
		*key |= (__u64)((__u32)would << 2 | other) << 32;
	}
	count(cpu, *key, bytes);
	return other != is ? cpu : 0;
}

// take has the first bytes of the packet in cpu->look, zeros behind a shorter one.
static __always_inline __u32 takes(struct shadow_cpu *cpu, __u32 have)
{
	__builtin_memset(cpu->look, 0, sizeof(cpu->look));
	have--;
	if (have >= SHADOW_BYTES)
		have = SHADOW_BYTES - 1;
	asm volatile("" : "+r"(have));
	return (have & (SHADOW_BYTES - 1)) + 1;
}

static __always_inline int in_xdp(struct xdp_md *ctx, __u64 judged, __u64 would, __u32 bytes,
				  int ip)
{
	__u64 key;
	struct shadow_cpu *cpu = note(judged, would, bytes, 0, &key);

	if (!cpu)
		return 0;
	if (bpf_xdp_load_bytes(ctx, 0, cpu->look, takes(cpu, bpf_xdp_get_buff_len(ctx))))
		return 0;
	sample(cpu, key, flow(cpu->look, ip), bytes);
	return 0;
}

static __always_inline int in_tcx(struct __sk_buff *ctx, __u64 judged, __u64 would, __u32 bytes,
				  int ip)
{
	__u64 key;
	struct shadow_cpu *cpu = note(judged, would, bytes, 1, &key);

	if (!cpu)
		return 0;
	if (bpf_skb_load_bytes(ctx, 0, cpu->look, takes(cpu, ctx->len)))
		return 0;
	sample(cpu, key, flow(cpu->look, ip), bytes);
	return 0;
}

__noinline int shadow_xdp(struct xdp_md *ctx, __u64 judged, __u64 would, __u32 bytes)
{
	return in_xdp(ctx, judged, would, bytes, 0);
}

__noinline int shadow_xdp_ip(struct xdp_md *ctx, __u64 judged, __u64 would, __u32 bytes)
{
	return in_xdp(ctx, judged, would, bytes, 1);
}

__noinline int shadow_tcx(struct __sk_buff *ctx, __u64 judged, __u64 would, __u32 bytes)
{
	return in_tcx(ctx, judged, would, bytes, 0);
}

__noinline int shadow_tcx_ip(struct __sk_buff *ctx, __u64 judged, __u64 would, __u32 bytes)
{
	return in_tcx(ctx, judged, would, bytes, 1);
}

// The place from which the functions are taken: clang knows nothing of these arguments.
#define ENTRY(section, name, context)                                                              \
	SEC(section)                                                                               \
	int entry_##name(context *ctx)                                                             \
	{                                                                                          \
		return shadow_##name(ctx, bpf_get_prandom_u32(), bpf_get_prandom_u32(),            \
				     bpf_get_prandom_u32());                                       \
	}

ENTRY("xdp", xdp, struct xdp_md)
ENTRY("xdp", xdp_ip, struct xdp_md)
ENTRY("tc", tcx, struct __sk_buff)
ENTRY("tc", tcx_ip, struct __sk_buff)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const enum shadow_verdict *unused_shadow_verdict __attribute__((unused));
