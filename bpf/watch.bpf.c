// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The programs that tell of decisions. levee's program hands them each packet that it has judged,
// as it does to those that capture. A flood of drops comes through here. An event above the bound
// costs one look at this CPU's row and one addition in it; no byte of the packet is read.
#include "judged.h"

// What a row of this CPU has of a slot.
struct watch_slot {
	__u64 next;  // when the next event is due, in units of unit; ~0: the slot is not watched
	__u64 told;  // events that the kernel took
	__u64 above; // the bound
	__u64 full;  // the kernel had no place for them
};

// What a row begins with.
struct watch_cpu {
	__u64 next; // as in a slot, of all events
	__u64 id;
	__u64 unused[6];
};

// A row for each CPU: a watch_cpu, and a watch_slot for each slot. The loader fills in the sizes.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 64);
} watched SEC(".maps");

#define UNIT_BITS 20 // a unit is a jiffy >> UNIT_BITS

#define WATCH_SNAP 128u

struct watch_event {
	struct capture_event of;
	__u8 packet[WATCH_SNAP];
};

const volatile __u32 slots = 0;
const volatile __u64 cpu_step = 1;  // units between two events of a CPU, on average
const volatile __u64 slot_step = 1; // the same for one slot
const volatile __u64 burst = 0;     // units that an event may come early

// due says whether an event may be made now: the generic cell rate algorithm (ITU-T I.371).
static __always_inline int due(const __u64 *next, __u64 now)
{
	return *next <= now + burst;
}

static __always_inline void charge(__u64 *next, __u64 now, __u64 step)
{
	*next = (*next > now ? *next : now) + step;
}

// wanted finds the slot of a packet that is to be shown. Its place in the ring is not reserved
// before its token is taken here: a full ring is dearer than the whole program.
static __always_inline struct watch_slot *wanted(struct capture_note *n, __u32 cpu, __u64 *id)
{
	__u64 jiffies = bpf_jiffies64(), now = jiffies << UNIT_BITS;
	__u32 slot = n->slot;

	if (!alive(n, jiffies) || !of_verdict(n) || slot >= slots)
		return 0;

	struct watch_cpu *row = bpf_map_lookup_elem(&watched, &cpu);

	if (!row)
		return 0;

	struct watch_slot *s = (struct watch_slot *)(row + 1) + slot;

	if (s->next == ~0ULL)
		return 0;
	if (!due(&s->next, now) || !due(&row->next, now)) {
		s->above++;
		return 0;
	}
	charge(&s->next, now, slot_step);
	charge(&row->next, now, cpu_step);
	*id = (__u64)cpu << EVENT_COUNT | ++row->id;
	return s;
}

// place reserves an event in the ring and fills all of it except the packet's bytes.
static __always_inline struct watch_event *place(const struct capture_note *n, struct watch_slot *s,
						 __u64 id, __u32 bytes, __u32 queue)
{
	struct watch_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		s->full++;
		return 0;
	}
	e->of.time = bpf_ktime_get_ns();
	e->of.id = id;
	e->of.slot = n->slot;
	e->of.verdict = n->verdict;
	e->of.bytes = bytes;
	e->of.queue = queue;
	return e;
}

// tell hands an event on; failed is whether the packet could not be read.
static __always_inline void tell(struct watch_slot *s, struct watch_event *e, long failed)
{
	if (failed) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		s->full++;
		return;
	}
	s->told++;
	bpf_ringbuf_submit(e, waking());
}

SEC("xdp")
int watch_xdp(struct xdp_md *ctx)
{
	__u32 cpu = this_cpu();
	struct capture_note *n = note(cpu);
	__u64 id;

	if (!n)
		return XDP_ABORTED;

	struct watch_slot *s = wanted(n, cpu, &id);

	if (s) {
		__u32 bytes = bpf_xdp_get_buff_len(ctx);
		struct watch_event *e = place(n, s, id, bytes, ctx->rx_queue_index);

		if (e)
			tell(s, e, bpf_xdp_load_bytes(ctx, 0, e->packet, handed(bytes, WATCH_SNAP)));
	}
	return n->verdict;
}

SEC("tc")
int watch_tc(struct __sk_buff *ctx)
{
	__u32 cpu = this_cpu();
	struct capture_note *n = note(cpu);
	__u64 id;

	if (!n)
		return 2; // TC_ACT_SHOT

	struct watch_slot *s = wanted(n, cpu, &id);

	if (s) {
		__u32 bytes = ctx->len;
		struct watch_event *e = place(n, s, id, bytes, queue_of(ctx));

		if (e)
			tell(s, e, bpf_skb_load_bytes(ctx, 0, e->packet, handed(bytes, WATCH_SNAP)));
	}
	return n->verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const struct watch_event *unused_watch_event __attribute__((unused));
const struct watch_slot *unused_watch_slot __attribute__((unused));
const struct watch_cpu *unused_watch_cpu __attribute__((unused));
