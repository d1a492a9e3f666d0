// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What the monitor of transport streams remembers: its maps, and the knobs that its loader sets.
#ifndef LEVEE_MPEGTS_H
#define LEVEE_MPEGTS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define TS_BYTES 188
#define TS_SYNC 0x47
#define TS_MOST 48 // packets of a datagram: 9,024 bytes
#define PIDS 8192
#define PID_NULL 8191
#define PIDS_FOLLOWED 255 // of a flow
#define PIDS_NEAR 32	  // of these, in its record; a power of two
#define PIDS_LATELY 64	  // a power of two
#define NO_VLAN 0xffff
#define SEGMENTS 64 // datagrams that the stack has merged into one packet, at most

// Addresses of IPv4 stand in the first 4 bytes.
struct mpegts_key {
	__u8 src[16], dst[16];
	__u16 src_port, dst_port; // as on the wire
	__u16 vlan, inner_vlan;	  // NO_VLAN when there is none
	__u32 six;		  // 1: of IPv6
};

// Where a stream may go that is followed; port 0 is every port.
struct mpegts_group {
	__u8 dst[16];
	__u16 port; // as on the wire
	__u16 six;
};

// What is read and written of a PID for each of its packets: half of a cache line.
struct mpegts_pid {
	__u64 packets;
	__u64 scrambled; // of these
	__u32 check;	 // of the packet before
	__u32 epoch;
	__u16 pid;
	__u8 cc;
	__u8 known;    // 1: cc is that of a packet of the flow's epoch
	__u8 repeated; // 1: the packet before was a duplicate
	__u8 unused[3];
};

// What is written of a PID when something happens.
struct mpegts_faults {
	__u64 discontinuities; // that nothing declares
	__u64 missing;	       // packets that these skip, by 16 each time at most
	__u64 duplicates;
	__u64 declared; // packets with a discontinuity_indicator
	__u64 errors;	// packets with a transport_error_indicator
};

// What is remembered of the PIDs of a flow beside its record, under the flow's lock. A packet of a
// usual stream needs nothing of it: it lies in pages of its own, and a TLB has not room for those
// of a thousand streams.
struct mpegts_pids {
	struct mpegts_pid pids[PIDS_FOLLOWED + 1]; // that are not in the record
	struct mpegts_faults faults[PIDS_FOLLOWED + 1];
	__u8 at[PIDS]; // by PID: the number of its place, from 1 on, 0 without one
};

// The record of a flow: what a datagram needs is one piece of some 430 bytes, of neighbouring cache
// lines in one page or two. The size is an odd number of lines: otherwise what records have at the
// same offset would compete for a part of the sets of a cache.
struct mpegts_flow {
	struct bpf_spin_lock lock;
	__u32 epoch; // what is known of continuity is of one; the next begins anew
	__u8 pids;   // that have a place
	__u8 rtp;    // 1: the datagram before had it
	__u8 type;   // RTP's payload type
	__u8 unused;
	__u32 data_check;  // of the datagram before
	__u64 first, last; // ns of the monotonic clock
	__u64 longest;	   // ns of the longest pause of any length
	__u64 datagrams;   // that were followed
	__u64 packets;	   // of them
	__u64 nulls;	   // of packets, of PID 8191

	// The delay factor of the current window; of earlier ones below.
	__u64 begun; // ns
	__u64 window_bytes;
	__s64 least, most; // ns of the virtual buffer
	__u64 byte_time;   // ns for a byte at the media rate, times 2^16; 0 is unknown
	__u64 pcr_last, last_at; // of the last PCR: in 27 MHz, and the bytes of the stream before it
	__u16 pcr_pid;		 // NO_PID: none was seen
	__u8 pcrs;		 // in the window: none, one, 2 is more
	__u8 rate_by;		 // enum mpegts_rate

	__u32 ssrc;
	__u64 came;	// which of the 64 numbers before expected did
	__u16 expected; // the next sequence number
	__u16 bad;	// one that would show a restart
	__u32 unused_too;

	__u8 lately[PIDS_LATELY];	   // by a hash of PIDs: the place of the last one, 0: none came
	struct mpegts_pid near[PIDS_NEAR]; // the first places

	__u64 pcr_first, first_at; // of the first PCR

	// Sums over the PIDs.
	__u64 scrambled, discontinuities, missing, duplicates, declared, errors;

	__u64 unsynced;	  // packets without a sync byte, not in packets
	__u64 unfollowed; // of packets, of PIDs for which there is no place
	__u64 rtp_lost;	    // sequence numbers that were skipped
	__u64 rtp_late;	    // of these, which came later
	__u64 rtp_restarts; // sequences that begin anew
	__u64 repeated;	    // datagrams that came before: not followed again
	__u64 strange;	    // datagrams of other lengths or without any sync byte
	__u64 fragments;    // first fragments of datagrams, which are not followed

	__u64 silences; // pauses of at least `silence`
	__u64 silent;	// ns of these

	__u64 delay;	  // ns, of the last whole window
	__u64 delay_most; // of any
	__u64 windows;
	__u64 faults; // before the window
	__u8 odd[64];
};

#define NO_PID 0xffff

// The sources of byte_time.
enum mpegts_rate { RATE_UNKNOWN, RATE_GIVEN, RATE_PCR, RATE_ARRIVAL };

struct mpegts_totals {
	__u64 fec;	 // datagrams of RTP with parity of others
	__u64 fragments; // that are not the first
	__u64 unplaced;	 // datagrams of streams for which there is no place
};

// What one packet of a datagram says.
struct mpegts_packet {
	__u64 pcr;
	__u32 check;
	__u16 pid;
	__u8 cc;
	__u8 is;
};
enum mpegts_is {
	IS_SYNCED = 1,
	IS_PAYLOAD = 2,
	IS_DECLARED = 4,
	IS_PCR = 8,
	IS_SCRAMBLED = 16,
	IS_ERROR = 32,
};

struct mpegts_cpu {
	struct mpegts_packet packets[TS_MOST];
	__u8 copy[TS_BYTES + 4]; // of a packet that does not lie in the first buffer
	// In memory, since the verifier knows nothing of numbers that are read from memory. Otherwise
	// it would walk the code behind a loop once for each number of packets.
	__u32 n, synced;
};

// The loader sizes the maps of streams, fills the queue, and takes back what has gone.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct mpegts_key);
	__type(value, __u32);
} streams SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mpegts_flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mpegts_pids);
} pids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct mpegts_group);
	__type(value, __u8);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mpegts_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mpegts_totals);
} totals SEC(".maps");

const volatile __u32 ether = 1;	  // frames begin with Ethernet
const volatile __u32 chosen = 0;  // only streams to groups are followed
const volatile __u32 discard = 0; // XDP: datagrams of streams end here
const volatile __u64 window = 1000000000; // ns
const volatile __u64 silence = 1000000000; // ns
const volatile __u64 given_byte_time = 0; // of every stream; 0: by PCR, or by what arrives

#endif
