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
	__u64 id;   // counts the CPU's packets that are wanted: those that are lost have one too
	__u32 slot;
	__u32 verdict; // the code
	__u32 bytes;   // of the whole frame
	__u32 queue;
};

// Who gets packets: bits of a note's first word, which is the place in levee's array of programs to
// which it goes. A program that takes samples hands on to the other by itself.
#define ON_LOOKS 1u   // captures, watches decisions, or is a shadow
#define ON_SAMPLES 2u // takes samples

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
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} events SEC(".maps");
#endif

// Those of levee's program, whose size the loader fills in.
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
const volatile __u32 snap = 128;    // bytes of a packet that are handed on
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

static __always_inline __u64 flags(__u32 bytes)
{
	return BPF_F_CURRENT_CPU | (__u64)(bytes < snap ? bytes : snap) << 32;
}

#endif
