// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What the programs have in common that get packets by a tail call, once levee's program has judged
// them: what that says of the packet, the events that they make of it, and how long they are
// wanted.
#ifndef LEVEE_JUDGED_H
#define LEVEE_JUDGED_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct capture_event {
	__u64 time; // CLOCK_MONOTONIC, ns
	__u64 id;   // the CPU, and EVENT_COUNT bits that count its packets that are wanted: those that
		    // are lost have one too
	__u32 slot;
	__u32 verdict; // the code
	__u32 bytes;   // of the whole frame
	__u32 queue;
};

#define EVENT_COUNT 40

// Who gets packets: bits of a note's first word, which is the place in levee's array of programs to
// which it goes: that of the highest bit. Each hands on to the others by itself.
#define ON_LOOKS 1u   // captures, watches decisions, or is a shadow
#define ON_SAMPLES 2u // takes samples
#define ON_FLOWS 4u   // hands on the first bytes of flows

#ifndef ROLE
#define ROLE ON_LOOKS // of the program that includes this
#endif

// What stands behind the counters of a row (internal/filter/plan, RowBytes).
struct capture_note {
	__u32 on, unused;
	__u32 slot;
	__u32 verdict;
};

#if ROLE == ON_LOOKS
// Events that wait for the reader; the loader fills in the size.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");

const volatile __u64 wake_at = 0; // bytes

// waking says whether the reader is woken for an event. That costs the CPU more than the event, so
// it is done when much lies there; until then the reader looks now and then by himself.
static __always_inline __u64 waking(void)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) >= wake_at ? BPF_RB_FORCE_WAKEUP
									 : BPF_RB_NO_WAKEUP;
}
#endif

// The counters of levee's program. The loader fills in the size.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 64);
} counters SEC(".maps");

const volatile __u32 row_bytes = 0; // of the counters
const volatile __u32 row_mask = 0;  // CPUs - 1
const volatile __u32 note_at = 0;   // in a row
const volatile __u32 snap = 128;    // bytes of a packet to hand on
const volatile __u32 verdicts = ~0; // bits: codes that are wanted

volatile __u64 until; // jiffies: the process has not been seen since, and may be gone

// this_cpu is the row of this CPU.
static __always_inline __u32 this_cpu(void)
{
	return bpf_get_smp_processor_id() & row_mask;
}

// note is what levee's program says of the packet.
static __always_inline struct capture_note *note(__u32 cpu)
{
	__u32 zero = 0;
	__u8 *row = bpf_map_lookup_elem(&counters, &zero);

	return row ? (void *)(row + cpu * row_bytes + note_at) : 0;
}

// alive says whether the process that reads events was there of late. If not, packets of this CPU
// come no more.
static __always_inline int alive(struct capture_note *n, __u64 now)
{
	if (now > until) {
		__sync_fetch_and_and(&n->on, ~ROLE);
		return 0;
	}
	return 1;
}

static __always_inline int of_verdict(const struct capture_note *n)
{
	return verdicts >> (n->verdict & 31) & 1;
}

// The stack numbers queues from 1, 0 is for none.
static __always_inline __u32 queue_of(const struct __sk_buff *ctx)
{
	return ctx->queue_mapping ? ctx->queue_mapping - 1 : 0;
}

// handed is how much of a packet is handed on, in a way that shows the verifier a number from 1 to
// most, a power of two.
static __always_inline __u32 handed(__u32 bytes, __u32 most)
{
	bytes = (bytes < snap ? bytes : snap) - 1;
	if (bytes >= most)
		bytes = most - 1;
	asm volatile("" : "+r"(bytes));
	return (bytes & (most - 1)) + 1;
}

#endif
