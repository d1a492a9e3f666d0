// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The receiver of measurements of packet generators: an XDP program that counts the IPv4 packets,
// notes the time between them, finds sources that come twice, and drops them. Everything else
// passes, so that neighbours are found.
//
// One thread receives, so that nothing here needs to be atomic.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "gaps.h"

struct seen {
	__u64 packets, bytes;
	__u64 first, last; // ns of the monotonic clock
	__u64 gap_max;
	__u64 repeats; // sources that came before
	__u64 outside; // sources outside of the expected range
	__u64 gaps[GAPS];
};

const volatile __u32 stamp = 0; // read the clock for each packet
const volatile __u32 source_base = 0; // of the sources that are told apart, and
const volatile __u32 source_count = 0; // how many; 0 for none

struct seen seen;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1); // a bit for each source
} sources SEC(".maps");

static __always_inline void note_source(__u32 address)
{
	__u32 i = bpf_ntohl(address) - source_base, word = i >> 6;
	__u64 bit = 1ULL << (i & 63), *bits;

	if (i >= source_count) {
		seen.outside++;
		return;
	}
	bits = bpf_map_lookup_elem(&sources, &word);
	if (!bits)
		return;
	if (*bits & bit)
		seen.repeats++;
	*bits |= bit;
}

static __always_inline void note_time(void)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 gap = now - seen.last;

	if (seen.packets) {
		__u32 b = gap_bucket(gap);

		if (gap > seen.gap_max)
			seen.gap_max = gap;
		if (b < GAPS)
			seen.gaps[b]++;
	} else {
		seen.first = now;
	}
	seen.last = now;
}

SEC("xdp")
int receiver(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + 34 > end || *(__u16 *)(data + 12) != bpf_htons(0x0800))
		return XDP_PASS;
	if (stamp)
		note_time();
	if (source_count)
		note_source(*(__u32 *)(data + 26));
	seen.packets++;
	seen.bytes += end - data;
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
