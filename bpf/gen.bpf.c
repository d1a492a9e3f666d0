// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The packet generator: run over live frames (BPF_F_TEST_XDP_LIVE_FRAMES) it decides whether the
// next packet is due, has it written by frame(), and redirects it to a device; no system call is
// made per packet or batch.
//
// The body of frame() is generated for what is sent (package template) and put in place of the one
// here before loading. Pages come back with whatever the receiver made of them, so it writes all
// headers each time.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "gaps.h"

#define BATCH 64 // frames between clock readings of an unpaced run

// The most clock readings for which a run waits for its packet: about 20 us.
#define READINGS 1024

struct pace {
	__u32 ifindex;
	__u32 burst; // packets of a paced run that go at once, 1 or more; a power of two
	__u64 interval; // ns between packets times 2^16, 0 for as fast as possible
	__u64 smooth; // least gap in ns while catching up
	__u64 patience; // ns before a packet is due from which a run waits for it, 0 for always
	// Clock readings for which a run waits, up to READINGS. A frame that is given back unsent
	// goes by the lock of the page pool, for which the receiver waits too: where a paced run
	// spun over frames, 8 of 10 ns of the receiving core went there. What was sent before
	// waits as well.
	__u64 readings;
};

// What changes; written by the one thread that runs the program.
struct run {
	__u64 sent, bytes, errors;
	// stop at this many sent: a test run that a signal interrupts starts again with its full count
	__u64 limit;
	__u64 start, deadline; // ns of the monotonic clock
	__u64 last; // time of the last clock reading that sent
	__u64 due; // when the next packet is due, ns since start times 2^16
	__u64 gap_max;
	__u64 done;
	__u64 gaps[GAPS];
};

const volatile struct pace plan = {};
struct run state;

static __always_inline void note_gap(__u64 gap)
{
	__u32 b = gap_bucket(gap);

	if (gap > state.gap_max)
		state.gap_max = gap;
	if (b < GAPS)
		state.gaps[b]++;
}

// due tells whether the next packet goes now.
static __always_inline int due(void)
{
	__u64 now;

	if (state.sent >= state.limit || state.done)
		return 0;
	if (state.sent & ((plan.interval ? plan.burst : BATCH) - 1))
		return 1;
	now = bpf_ktime_get_ns();
	if (plan.interval) {
		int early = 1;

		if (plan.patience && now + plan.patience < state.start + (state.due >> 16) &&
		    now < state.deadline)
			return 0;
		for (int i = 0; i < READINGS && i < plan.readings && early; i++) {
			now = bpf_ktime_get_ns();
			early = now < state.start || (now - state.start) << 16 < state.due ||
				now - state.last < plan.smooth;
		}
		if (early && now < state.deadline)
			return 0;
	}
	if (now >= state.deadline) {
		state.done = 1;
		return 0;
	}
	state.due += plan.interval * plan.burst;
	if (state.last)
		note_gap(now - state.last);
	state.last = now;
	return 1;
}

// frame writes frame number n and returns its length in bytes, 0 when it cannot. Weak, so that
// clang takes nothing about it for granted.
__weak __attribute__((noinline)) int frame(struct xdp_md *ctx, __u64 n)
{
	return ctx->data_end - ctx->data + n;
}

SEC("xdp")
int gen(struct xdp_md *ctx)
{
	__u32 bytes;

	if (!due())
		return XDP_DROP;
	bytes = frame(ctx, state.sent);
	if (!bytes) {
		state.errors++;
		return XDP_DROP;
	}
	state.sent++;
	state.bytes += bytes;
	return bpf_redirect(plan.ifindex, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
