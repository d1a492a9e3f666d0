// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a device takes of the frames that the generator's program redirects to it. The kernel hands
// them to the driver by 16, and tells of each such batch; a redirect itself succeeds also where the
// driver takes none.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct net_device {
	int ifindex;
} __attribute__((preserve_access_index));

struct meter {
	__u64 pidns_dev, pidns_ino; // of the PID namespace
	__u32 thread;		    // that runs the generator's program
	__s32 ifindex;
};

struct taken {
	__u64 frames, refused;	// by a driver that takes some
	__u64 none;		// by one that says that it takes none
	__s64 why;		// its error
};

const volatile struct meter meter = {};
struct taken taken;

// xdp_devmap_xmit(from, to, sent, drops, err)
SEC("tp_btf/xdp_devmap_xmit")
int devmap_xmit(__u64 *ctx)
{
	const struct net_device *to = (const struct net_device *)ctx[1];
	struct bpf_pidns_info id;
	__s32 sent = ctx[2], drops = ctx[3], err = ctx[4];

	if (to->ifindex != meter.ifindex ||
	    bpf_get_ns_current_pid_tgid(meter.pidns_dev, meter.pidns_ino, &id, sizeof(id)) ||
	    id.pid != meter.thread)
		return 0;
	if (sent > 0)
		taken.frames += sent;
	if (drops > 0 && err >= 0)
		taken.refused += drops;
	if (drops > 0 && err < 0) {
		taken.none += drops;
		taken.why = err;
	}
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
