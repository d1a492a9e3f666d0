// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The programs that capture. levee's program hands them a packet that it has judged, by a tail
// call, and says in its row of counters which slot decided and what it would have returned: they
// return that. Package capture gives them a filter.
#include "judged.h"

#define CAPTURE_LOOKS 256	// bytes that a filter sees
#define CAPTURE_MOST (16 << 10) // bytes that can be handed on

struct capture_cpu {
	__u64 window; // a jiffy above, how many events in it below
	__u64 taken;  // by the filter
	__u64 above;  // the bound
	__u64 lost;   // the kernel had no place for them
	struct capture_event event;
	__u8 packet[CAPTURE_LOOKS];
	__u8 rest[CAPTURE_MOST - CAPTURE_LOOKS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_cpu);
} cpus SEC(".maps");

const volatile __u32 bound = 1;	    // events in a jiffy and CPU
const volatile __u32 slots_from = 0, slots_to = ~0;

// wanted is replaced by the filter.
static __noinline int wanted(__u8 *packet, __u32 have, __u32 bytes)
{
	int yes;

	asm volatile("%0 = 1" : "=r"(yes) : "r"(packet), "r"(have), "r"(bytes));
	return yes;
}

// look says what there is to tell of a packet, whose first bytes are in c.
static __always_inline int look(struct capture_cpu *c, const struct capture_note *n, __u32 have,
				__u32 bytes)
{
	if (!wanted(c->packet, have, bytes))
		return 0;
	c->taken++;

	__u64 now = bpf_jiffies64() << 16;

	if (c->window - now >= 1 << 16)
		c->window = now;
	if (c->window - now >= bound) {
		c->above++;
		return 0;
	}
	c->window++;
	c->event.time = bpf_ktime_get_ns();
	c->event.id = (__u64)bpf_get_smp_processor_id() << EVENT_COUNT | c->taken;
	c->event.slot = n->slot;
	c->event.verdict = n->verdict;
	c->event.bytes = bytes;
	return 1;
}

static __always_inline int chosen(struct capture_note *n)
{
	return alive(n, bpf_jiffies64()) && of_verdict(n) && n->slot >= slots_from &&
	       n->slot <= slots_to;
}

// looks_at says how many bytes of a frame a filter sees, in a way that shows the verifier a number
// from 1 to CAPTURE_LOOKS.
static __always_inline __u32 looks_at(__u32 bytes)
{
	bytes--;
	if (bytes >= CAPTURE_LOOKS)
		bytes = CAPTURE_LOOKS - 1;
	asm volatile("" : "+r"(bytes));
	return (bytes & (CAPTURE_LOOKS - 1)) + 1;
}

// tell hands an event on, with so many bytes of the packet; failed is whether they could not be
// read.
static __always_inline void tell(struct capture_cpu *c, long failed, __u32 have)
{
	if (failed || bpf_ringbuf_output(&events, &c->event, sizeof(c->event) + have, waking()))
		c->lost++;
}

static __always_inline void tell_xdp(struct xdp_md *ctx, const struct capture_note *n)
{
	__u32 zero = 0, bytes = bpf_xdp_get_buff_len(ctx), have = looks_at(bytes);
	struct capture_cpu *c = bpf_map_lookup_elem(&cpus, &zero);

	if (!c || bpf_xdp_load_bytes(ctx, 0, c->packet, have) || !look(c, n, have, bytes))
		return;
	c->event.queue = ctx->rx_queue_index;
	have = handed(bytes, CAPTURE_MOST);
	tell(c, have > CAPTURE_LOOKS ? bpf_xdp_load_bytes(ctx, 0, c->packet, have) : 0, have);
}

SEC("xdp")
int capture_xdp(struct xdp_md *ctx)
{
	struct capture_note *n = note(this_cpu());

	if (!n)
		return XDP_ABORTED;
	if (chosen(n))
		tell_xdp(ctx, n);
	return n->verdict;
}

static __always_inline void tell_tc(struct __sk_buff *ctx, const struct capture_note *n)
{
	__u32 zero = 0, bytes = ctx->len, have = looks_at(bytes);
	struct capture_cpu *c = bpf_map_lookup_elem(&cpus, &zero);

	if (!c || bpf_skb_load_bytes(ctx, 0, c->packet, have) || !look(c, n, have, bytes))
		return;
	c->event.queue = queue_of(ctx);
	have = handed(bytes, CAPTURE_MOST);
	tell(c, have > CAPTURE_LOOKS ? bpf_skb_load_bytes(ctx, 0, c->packet, have) : 0, have);
}

SEC("tc")
int capture_tc(struct __sk_buff *ctx)
{
	struct capture_note *n = note(this_cpu());

	if (!n)
		return 2; // TC_ACT_SHOT
	if (chosen(n))
		tell_tc(ctx, n);
	return n->verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const struct capture_event *unused_capture_event __attribute__((unused));
const struct capture_cpu *unused_capture_cpu __attribute__((unused));
