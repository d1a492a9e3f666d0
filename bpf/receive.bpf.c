// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The XDP programs of the measurement of ways to receive: one hands UDP datagrams over IPv4 to an
// AF_XDP socket, one copies them into a ring buffer of BPF. Everything else passes, so that
// neighbours are found.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

const volatile __u32 size = ETH_ZLEN; // bytes of each frame

__u64 lost; // frames that found no room in the ring buffer

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); // bytes, set by who loads it
} records SEC(".maps");

static __always_inline int measured(void *data, void *end)
{
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);

	return (void *)(ip + 1) <= end && eth->h_proto == bpf_htons(ETH_P_IP) &&
	       ip->protocol == IPPROTO_UDP;
}

SEC("xdp")
int to_socket(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (!measured(data, end))
		return XDP_PASS;
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
}

// One thread of the kernel receives, so that lost needs not be atomic.
SEC("xdp")
int to_buffer(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *record;

	if (!measured(data, end) || end - data != size)
		return XDP_PASS;
	record = bpf_ringbuf_reserve(&records, size, 0);
	if (!record) {
		lost++;
		return XDP_DROP;
	}
	bpf_xdp_load_bytes(ctx, 0, record, size); // is as long: cannot fail
	bpf_ringbuf_submit(record, 0);
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
