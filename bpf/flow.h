// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The memory of connections, as package flow lays it out, and what leaves says of them.
#ifndef LEVEE_FLOW_H
#define LEVEE_FLOW_H

#include "parse.h"

// What is known of a connection. The numbers stay: memories go on when levee is replaced. Who gives
// way to others: see rank.
enum flow_state {
	FLOW_NONE,
	FLOW_OPENING,  // TCP: a SYN has left
	FLOW_ANSWERED, // TCP: a SYN-ACK has left; proof is what the client has to acknowledge
	FLOW_OPEN,     // TCP: the other side has acknowledged what has left
	FLOW_CLOSING,  // TCP: both sides have sent FIN
	FLOW_RESET,    // TCP: a RST has left
	FLOW_ONE_WAY,  // UDP: this side began, and nothing has come back
	FLOW_TWO_WAY,  // UDP: this side began
	FLOW_ECHO,     // an ICMP echo request has left
	FLOW_OLDER,    // TCP: a segment of nothing known has left; proof is its number
	FLOW_STRANGER, // UDP: the other side began; what it sends is of no known connection
	FLOW_GROUP,    // UDP: a port has asked a group, or a group has been asked
	FLOW_SERVED,   // UDP: some FLOW_STRANGER has come to a port
	FLOW_STATES,
};

#define FLOW_STATE 0xf
#define FLOW_FIN_IN 0x10
#define FLOW_FIN_OUT 0x20
#define FLOW_RST_IN 0x40 // of FLOW_OPEN; proof is when it came, in jiffies
#define FLOW_FIRST 0x10  // of FLOW_ONE_WAY and FLOW_TWO_WAY: noted while settled was to come
#define FLOW_LOW 19 // bits below the tag; as many name the bucket of the largest memory

// Of FLOW_ANSWERED and FLOW_OLDER: how many blocks of data have left behind proof. The other side
// may acknowledge any part of them. The number stands behind the bits above.
#define FLOW_SENT 7
#define FLOW_BLOCK 14 // bits of a sequence number within a block
#define FLOW_BLOCKS ((1 << (FLOW_LOW - FLOW_SENT)) - 1)

// Tag and state in one word; FLOW_NONE is an empty place.
struct flow {
	__u64 word;
	__u32 proof; // a sequence number; with FLOW_RST_IN jiffies
	__u32 expires; // jiffies, the lower 32 bits
};

#define FLOW_BUCKET 8
#define FLOW_FACTORS 12

struct flow_head {
	__u64 start, last; // of the hash: see package limit
	__u64 factors[FLOW_FACTORS];
	__u64 clock; // jiffies for tests, 0 for those of the kernel
	__u32 second; // in jiffies
	__u32 idle;   // after which an open connection may lose its place
	__u32 lease[16]; // by state, and a second: a CPU may be behind the one that wrote expires
	__u64 refused; // connections that found no place
	__u64 taken;   // places taken from connections whose lease had not ended
	__u64 asked;   // jiffies << 16 | how often the kernel has been asked in this jiffy, of TCP
	__u64 asks;    // how often it may be, of each protocol
	__u64 asked_udp;
	__u64 settled; // jiffies; until then what leaves may answer packets from before the program
	__u64 groups;  // jiffies until which some FLOW_GROUP is there
	__u64 crowded; // jiffies until which a FLOW_STRANGER may have been forgotten
};

// A memory is a head; a byte for each bucket; the buckets; and a bit for each bucket. The byte of a
// bucket is a small filter that caches hold: bit n is set if a place of the bucket may have a tag
// that ends in n. The bit of a bucket tells whether it has a connection of FLOW_OPENING: a SYN that
// comes in is looked up in such buckets only. A memory with fewer buckets than tags are made for
// ends in one more byte for each place. That byte holds the bits of the hash above the tag, which a
// move into a larger memory needs.
struct flows {
	struct flow_head head;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flows);
} flows SEC(".maps");

// What depends on how many buckets a memory has. Package flow replaces the numbers when it knows:
// so verifiers see constants, and programs load none.
#define FLOW_SIZED(name, number)                                                                   \
	static __always_inline __u64 name(void)                                                    \
	{                                                                                          \
		__u64 n;                                                                           \
                                                                                                   \
		asm("%0 = " #number : "=r"(n));                                                    \
		return n;                                                                          \
	}
FLOW_SIZED(flow_shift, 0x666c6f01)   // right shift that makes a hash a bucket number
FLOW_SIZED(flow_places, 0x666c6f02)  // offset of the buckets
FLOW_SIZED(flow_opening, 0x666c6f03) // offset of the bits behind the buckets
FLOW_SIZED(flow_above, 0x666c6f04)   // offset of the bytes behind the bits, 0 without these

static __always_inline __u64 flow_number(__u64 hash) { return hash >> flow_shift(); }

// flow_bucket is the bucket of a hash.
static __always_inline struct flow *flow_bucket(struct flows *m, __u64 hash)
{
	return (void *)m + flow_places() + flow_number(hash) * (FLOW_BUCKET * sizeof(struct flow));
}

// flow_present is the byte of a bucket.
static __always_inline __u8 *flow_present(struct flows *m, __u64 hash)
{
	return (void *)m + sizeof(m->head) + flow_number(hash);
}

static __always_inline __u64 flow_piece(const struct flow_head *h, __u64 sum, int i, __u32 piece)
{
	return sum + h->factors[i] * piece;
}

static __always_inline __u64 flow_mix(const struct flow_head *h, __u64 sum, __u32 ports,
				       __u32 proto)
{
	sum = flow_piece(h, sum, 8, ports);
	sum = flow_piece(h, sum, 9, proto);
	sum ^= sum >> 32;
	return sum * h->last;
}

// flow_hash hashes a packet that leaves: its source is the side that the policy protects.
static __always_inline __u64 flow_hash(const struct flow_head *h, const struct key *k, int six,
				       __u32 ports)
{
	__u64 sum = h->start;

	if (six) {
		sum = flow_piece(h, sum, 0, k->src_hi >> 32);
		sum = flow_piece(h, sum, 1, k->src_hi);
		sum = flow_piece(h, sum, 2, k->src_lo >> 32);
		sum = flow_piece(h, sum, 3, k->src_lo);
		sum = flow_piece(h, sum, 4, k->dst_hi >> 32);
		sum = flow_piece(h, sum, 5, k->dst_hi);
		sum = flow_piece(h, sum, 6, k->dst_lo >> 32);
		sum = flow_piece(h, sum, 7, k->dst_lo);
	} else {
		sum = flow_piece(h, sum, 0, k->src_hi);
		sum = flow_piece(h, sum, 4, k->dst_hi);
	}
	return flow_mix(h, sum, ports, k->proto | six << 8);
}

// flow_group_hash hashes an address and UDP port of the side that the policy protects, without any
// other side.
static __always_inline __u64 flow_group_hash(const struct flow_head *h, __u64 hi, __u64 lo, int six,
					     __u16 port)
{
	__u64 sum = h->start;

	if (six) {
		sum = flow_piece(h, sum, 0, hi >> 32);
		sum = flow_piece(h, sum, 1, hi);
		sum = flow_piece(h, sum, 2, lo >> 32);
		sum = flow_piece(h, sum, 3, lo);
	} else {
		sum = flow_piece(h, sum, 0, hi);
	}
	return flow_mix(h, sum, (__u32)port << 16, 17 | six << 8);
}

// flow_port_hash hashes a UDP port alone, without addresses.
static __always_inline __u64 flow_port_hash(const struct flow_head *h, __u16 port)
{
	return flow_mix(h, h->start, (__u32)port << 16, 17 | 1 << 9);
}

static __always_inline __u32 flow_now(const struct flow_head *h)
{
	return h->clock ? h->clock : bpf_jiffies64();
}

// flow_known returns 1 if the memory has the connection of a hash and its lease has not ended.
static __always_inline int flow_known(struct flows *m, __u64 hash)
{
	__u64 tag = hash << FLOW_LOW >> FLOW_LOW;
	__u32 now = flow_now(&m->head);
	const struct flow *bucket = flow_bucket(m, hash);

	if (!(*flow_present(m, hash) & 1 << (tag & 7)))
		return 0;
	for (int i = 0; i < FLOW_BUCKET; i++) {
		const struct flow *f = &bucket[i];
		__u64 word = f->word;
		__u32 state = word & FLOW_STATE;

		if (word >> FLOW_LOW == tag && state && state != FLOW_STRANGER &&
		    f->expires - now - 1 < m->head.lease[state])
			return 1;
	}
	return 0;
}

#endif
