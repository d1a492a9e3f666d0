// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The programs that take samples of judged packets for the agent. Packets that pass and packets
// that do not are sampled apart, so that a flood that is dropped leaves room for the rest. Of each
// kind one in so many packets is taken, at random, as the last jiffy had packets for each sample
// that is wanted; each sample says how many packets it stands for, so that their sum is exact.
#define ROLE 2u // ON_SAMPLES
#include "judged.h"

// levee's array of programs. The one that captures runs behind this one.
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 8);
	__uint(key_size, 4);
	__uint(value_size, 4);
} programs SEC(".maps");

struct sample_event {
	struct capture_event of; // its id is the CPU
	__u64 weight; // packets of the kind and CPU since the sample before
};

// Samples that wait for the reader. Perf events take rights that agents of some distributions do
// not have (kernel.perf_event_paranoid above 2 wants CAP_SYS_ADMIN); the loader fills in the size.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} samples SEC(".maps");

// A sample is put together here, in the room of its CPU; the loader fills in their number.
#define SAMPLE_SNAP 256u
struct sample_room {
	struct sample_event event;
	__u8 packet[SAMPLE_SNAP];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample_room);
} rooms SEC(".maps");

// One kind of packets of a CPU.
struct sample_kind {
	__u64 jiffy; // in which seen and taken are counted
	__u64 seen;
	__u64 taken;
	__u64 step;  // one in so many is taken
	__u64 left;  // packets until the next
	__u64 since; // packets since the last
	__u64 told;  // samples that the kernel took
	__u64 full;  // the kernel had no place for them
};

// A pair for each CPU: packets that pass, and others. The loader fills in their number.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 2 * sizeof(struct sample_kind));
} sampled SEC(".maps");

volatile __u64 bound; // samples of a jiffy, CPU and kind

// draw says how many packets come before the next sample: as many as the step in the mean.
static __always_inline __u64 draw(__u64 step)
{
	return step > 1 ? (__u64)bpf_get_prandom_u32() * (2 * step - 1) >> 32 : 0;
}

// begin begins a jiffy. What was left of the one before is of its step. Where that took all of its
// samples, the next packet is no random one: it is the first of its jiffy, as of who sends by a
// timer.
static __always_inline void begin(struct sample_kind *k, __u64 now, __u64 most)
{
	__u64 step = k->seen / (most * (now - k->jiffy));

	if (k->taken >= most || k->left > 2 * step)
		k->left = draw(step);
	k->jiffy = now;
	k->seen = 0;
	k->taken = 0;
	k->step = step;
}

// wanted returns the kind of a packet that becomes a sample, with all fields of its event filled
// that do not need the context; 0 for other packets.
static __always_inline struct sample_kind *wanted(struct capture_note *n, __u32 cpu)
{
	__u64 now = bpf_jiffies64(), most = bound;

	if (!alive(n, now))
		return 0;

	struct sample_kind *k = bpf_map_lookup_elem(&sampled, &cpu);

	if (!k)
		return 0;
	if (!of_verdict(n))
		k++;
	if (k->jiffy != now)
		begin(k, now, most);
	k->seen++;
	k->since++;
	if (k->left) {
		k->left--;
		return 0;
	}
	if (k->taken >= most)
		return 0;
	k->taken++;
	k->left = draw(k->step);
	return k;
}

// fill is the room of a CPU with what a sample says of a packet.
static __always_inline struct sample_room *fill(const struct capture_note *n, __u32 cpu,
						const struct sample_kind *k, __u32 bytes,
						__u32 queue)
{
	struct sample_room *r = bpf_map_lookup_elem(&rooms, &cpu);

	if (!r)
		return 0;
	r->event.of.time = bpf_ktime_get_ns();
	r->event.of.id = cpu;
	r->event.of.slot = n->slot;
	r->event.of.verdict = n->verdict;
	r->event.of.bytes = bytes;
	r->event.of.queue = queue;
	r->event.weight = k->since;
	return r;
}

// tell hands a sample on; failed is whether the packet could not be read. Nobody is woken: who
// reads looks by himself.
static __always_inline void tell(struct sample_kind *k, struct sample_room *r, long failed,
				 __u32 have)
{
	if (failed || bpf_ringbuf_output(&samples, r, sizeof(r->event) + have, BPF_RB_NO_WAKEUP)) {
		k->full++; // the next one stands for it
		return;
	}
	k->since = 0;
	k->told++;
}

SEC("xdp")
int sample_xdp(struct xdp_md *ctx)
{
	__u32 cpu = this_cpu();
	struct capture_note *n = note(cpu);

	if (!n)
		return XDP_ABORTED;

	struct sample_kind *k = wanted(n, cpu);

	if (k) {
		__u32 bytes = bpf_xdp_get_buff_len(ctx), some = handed(bytes, SAMPLE_SNAP);
		struct sample_room *r = fill(n, cpu, k, bytes, ctx->rx_queue_index);

		if (r)
			tell(k, r, bpf_xdp_load_bytes(ctx, 0, r->packet, some), some);
	}
	if (n->on & ON_LOOKS)
		bpf_tail_call(ctx, &programs, ON_LOOKS);
	return n->verdict;
}

SEC("tc")
int sample_tc(struct __sk_buff *ctx)
{
	__u32 cpu = this_cpu();
	struct capture_note *n = note(cpu);

	if (!n)
		return 2; // TC_ACT_SHOT

	struct sample_kind *k = wanted(n, cpu);

	if (k) {
		__u32 bytes = ctx->len, some = handed(bytes, SAMPLE_SNAP);
		struct sample_room *r = fill(n, cpu, k, bytes, queue_of(ctx));

		if (r)
			tell(k, r, bpf_skb_load_bytes(ctx, 0, r->packet, some), some);
	}
	if (n->on & ON_LOOKS)
		bpf_tail_call(ctx, &programs, ON_LOOKS);
	return n->verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const struct sample_event *unused_sample_event __attribute__((unused));
const struct sample_kind *unused_sample_kind __attribute__((unused));
