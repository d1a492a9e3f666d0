// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The programs that hand the first bytes of flows to the agent. A flow of TCP begins with a SYN
// that passes to a port which is read, and is proven once the kernel has a connection: whoever
// forges the address of another can begin a flow, and never proves it. What is known of a flow is
// the number of its first byte, and whether the agent still wants it.
//
// A flow of UDP begins with a datagram to such a port when there was none for a while. Its
// datagrams are numbered, so that who reads them knows whether he has all. The policy proves it.
#define ROLE 4u // ON_FLOWS
#include "judged.h"

#include <bpf/bpf_endian.h>

// levee's array of programs. Those that take samples, capture or watch run behind this one.
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 8);
	__uint(key_size, 4);
	__uint(value_size, 4);
} programs SEC(".maps");

#define OTHER_ROLES (ON_LOOKS | ON_SAMPLES)

// Addresses of IPv4 stand in the first 4 bytes.
struct flows_key {
	__u8 src[16], dst[16];
	__u16 src_port, dst_port; // as on the wire
	__u32 proto;		  // with FLOWS_IPV6: an address of IPv6 may end in 12 bytes of 0
};
#define FLOWS_IPV6 (1u << 8)

// Bits of a flow's state, and above them how many datagrams it has had.
#define FLOWS_PROVEN 1u
#define FLOWS_DONE 2u // the agent wants no more; it alone sets that
#define FLOWS_COUNT 8

struct flows_flow {
	__u32 from; // the number of the first byte; of UDP when the flow began, in jiffies
	__u32 state;
	__u32 last; // of UDP: jiffies of a datagram of late; 0: the agent has written the flow
	__u32 unused;
};

struct flows_event {
	struct capture_event of;
	__u32 from;
	__u32 proven;
	__u32 number; // of a datagram
	__u32 unused;
};

// What does not fit gives way to what comes: the kernel takes the flow that it asked for longest
// ago. Flows of UDP, which any datagram of a forged source begins, have places of their own.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, struct flows_key);
	__type(value, struct flows_flow);
} flows SEC(".maps"), flows_udp SEC(".maps");

// For each port of a destination: which flows to it are read.
#define READ_TCP 1
#define READ_UDP 2
#define READ_INITIALS 4 // Initials of QUIC alone
struct flows_ports {
	__u8 of[1 << 16];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flows_ports);
} ports SEC(".maps");

// Events that wait for the reader; the loader fills in the size.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

#define FLOWS_SNAP (16u << 10)
struct flows_cpu {
	struct flows_event event;
	__u8 packet[FLOWS_SNAP];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flows_cpu);
} cpus SEC(".maps");

struct flows_counts {
	__u64 begun; // flows
	__u64 told;  // packets
	__u64 lost;  // the ring had no place for them
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flows_counts);
} counts SEC(".maps");

static __always_inline struct flows_counts *counted(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counts, &zero);
}

static __always_inline int begin(void *in, const struct flows_key *k, const struct flows_flow *f,
				 __u64 how)
{
	struct flows_counts *n = counted();

	if (bpf_map_update_elem(in, k, f, how))
		return 0;
	if (n)
		n->begun++;
	return 1;
}

const volatile __u32 ether = 1;	       // frames begin with Ethernet
const volatile __u32 limit = 16 << 10; // bytes of a flow
const volatile __u32 datagrams = 16;   // of a flow
const volatile __u32 idle = 60 * 250;  // jiffies without a datagram, after which a flow has ended

#define PROTO_TCP 6
#define PROTO_UDP 17

// segment is what is asked of a packet.
struct segment {
	struct flows_key key;
	__u32 seq;
	__u32 data; // bytes of payload
	__u32 flags;
};

static __always_inline __u32 word(const __u8 *p)
{
	return (__u32)p[0] << 24 | (__u32)p[1] << 16 | (__u32)p[2] << 8 | p[3];
}

static __always_inline __u32 half(const __u8 *p)
{
	return (__u32)p[0] << 8 | p[1];
}

// reads says which flows to a port are read.
static __always_inline __u32 reads(__u32 port)
{
	__u32 zero = 0;
	const struct flows_ports *read = bpf_map_lookup_elem(&ports, &zero);

	return read && port < sizeof(read->of) ? read->of[port] : 0;
}

// is_initial says whether a datagram may begin with an Initial of a client (RFC 9000, sections 14.1
// and 17.2.2; RFC 9369, section 3.2). The payload may lie outside of the first buffer.
static __always_inline int is_initial(const __u8 *payload, const __u8 *end, __u32 bytes)
{
	const __u32 v2 = 0x6b3343cf;

	if (bytes < 1200)
		return 0;
	if (payload + 5 > end)
		return 1;
	return (payload[0] & 0xb0) == (word(payload + 1) == v2 ? 0x90 : 0x80);
}

// decode reads a packet that is whole and has no more headers than most, and says whether somebody
// reads flows to its port. Of other packets it reads the port alone.
static __always_inline int decode(const __u8 *at, const __u8 *end, struct segment *s)
{
	__u32 type = 0, left, proto, of;
	const __u8 *ip;

	if (ether) {
		if (at + 22 > end)
			return 0;
		type = half(at + 12);
		at += 14;
		for (int i = 0; i < 2; i++) {
			if (type != 0x8100 && type != 0x88a8)
				break;
			type = half(at + 2);
			at += 4;
		}
	}
	if (at + 20 > end)
		return 0;
	ip = at;
	if (!ether)
		type = at[0] >> 4 == 4 ? 0x0800 : 0x86dd;
	if (type == 0x0800) {
		__u32 header = (at[0] & 15) * 4;

		left = half(at + 2);
		if (header < 20 || left < header || half(at + 6) & 0x3fff)
			return 0;
		left -= header;
		proto = at[9];
		at += header;
	} else if (type == 0x86dd) {
		if (at + 40 > end)
			return 0;
		left = half(at + 4);
		proto = at[6];
		at += 40;
	} else {
		return 0;
	}
	if (at + 8 > end)
		return 0;
	of = reads(half(at + 2));
	if (proto == PROTO_TCP) {
		__u32 header;

		if (!(of & READ_TCP) || at + 20 > end)
			return 0;
		header = (at[12] >> 4) * 4;
		if (header < 20 || left < header)
			return 0;
		s->seq = word(at + 4);
		s->flags = at[13];
		s->data = left - header;
	} else if (proto == PROTO_UDP) {
		__u32 bytes = half(at + 4);

		if (!(of & (READ_UDP | READ_INITIALS)) || bytes <= 8 || bytes > left)
			return 0;
		if (!(of & READ_UDP) && !is_initial(at + 8, end, bytes - 8))
			return 0;
		s->data = bytes - 8;
	} else {
		return 0;
	}
	s->key.proto = type == 0x0800 ? proto : proto | FLOWS_IPV6;
	__builtin_memcpy(&s->key.src_port, at, 4);
	if (type == 0x0800) {
		__builtin_memcpy(s->key.src, ip + 12, 4);
		__builtin_memcpy(s->key.dst, ip + 16, 4);
	} else {
		__builtin_memcpy(s->key.src, ip + 8, 16);
		__builtin_memcpy(s->key.dst, ip + 24, 16);
	}
	return 1;
}

// wanted_datagram returns 1 if a datagram goes to the reader. One more than the reader reads is
// handed on, which tells the reader that there are more.
static __always_inline int wanted_datagram(struct flows_cpu *c, const struct segment *s)
{
	__u32 now = bpf_jiffies64() | 1; // 0 is for what the agent has written
	struct flows_flow *f = bpf_map_lookup_elem(&flows_udp, &s->key);

	if (f && f->last && now - f->last > idle && (__s32)(now - f->last) > 0)
		f = 0;
	if (f) {
		__u32 last = f->last, n;

		if (now - last > idle / 16)
			f->last = now;
		if (f->state & FLOWS_DONE || f->state >> FLOWS_COUNT > datagrams)
			return 0;
		n = __sync_fetch_and_add(&f->state, 1 << FLOWS_COUNT) >> FLOWS_COUNT;
		c->event.from = f->from;
		c->event.number = n;
	} else {
		struct flows_flow begun = {.from = now, .state = 1 << FLOWS_COUNT, .last = now};

		if (!begin(&flows_udp, &s->key, &begun, BPF_ANY))
			return 0;
		c->event.from = now;
		c->event.number = 0;
	}
	c->event.proven = 0;
	return 1;
}

#define FIN 0x01u
#define SYN 0x02u
#define RST 0x04u
#define ACK 0x10u

// What the kernel knows of a connection: include/net/tcp_states.h.
#define KNOWN 1u
#define HAS_SHAKEN 2u
#define SHAKES 4u // a SYN has come, and was answered
#define NEW_SYN_RECV 12
#define SHAKEN_STATES (1u << 1 | 1u << 4 | 1u << 5 | 1u << 8 | 1u << 9 | 1u << 11)

static __always_inline __u32 asked(void *ctx, const struct segment *s, int six)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	__u32 is;

	if (six) {
		__builtin_memcpy(t.ipv6.saddr, s->key.src, 16);
		__builtin_memcpy(t.ipv6.daddr, s->key.dst, 16);
		t.ipv6.sport = s->key.src_port;
		t.ipv6.dport = s->key.dst_port;
		sk = bpf_skc_lookup_tcp(ctx, &t, sizeof(t.ipv6), BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(&t.ipv4.saddr, s->key.src, 4);
		__builtin_memcpy(&t.ipv4.daddr, s->key.dst, 4);
		t.ipv4.sport = s->key.src_port;
		t.ipv4.dport = s->key.dst_port;
		sk = bpf_skc_lookup_tcp(ctx, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return 0;
	is = KNOWN | (SHAKEN_STATES >> (sk->state & 31) & 1 ? HAS_SHAKEN : 0) |
	     (sk->state == NEW_SYN_RECV ? SHAKES : 0);
	bpf_sk_release(sk);
	return is;
}

// wanted_segment says whether a segment is handed on, and what of its flow is known.
static __always_inline int wanted_segment(void *ctx, struct flows_cpu *c, const struct segment *s,
				      int six)
{
	struct flows_flow *f;
	__u32 first = 0;

	if ((s->flags & (SYN | ACK)) == SYN) {
		struct flows_flow begun = {.from = s->seq + 1};
		__u32 is = asked(ctx, s, six);

		// A SYN within a connection is no beginning: who forges it would say where that begins.
		// The same is true of one behind the SYN that the kernel has answered.
		if (is == KNOWN)
			begin(&flows, &s->key, &begun, BPF_ANY);
		else if (is == (KNOWN | SHAKES))
			begin(&flows, &s->key, &begun, BPF_NOEXIST);
		return 0;
	}
	f = bpf_map_lookup_elem(&flows, &s->key);
	if (!f || f->state & FLOWS_DONE)
		return 0;
	if (!(f->state & FLOWS_PROVEN) && asked(ctx, s, six) & HAS_SHAKEN) {
		f->state |= FLOWS_PROVEN;
		first = 1;
	}
	if (!s->data && !first && !(s->flags & (FIN | RST)))
		return 0;
	if (s->seq - f->from + s->data >= limit + s->data)
		return 0;
	c->event.from = f->from;
	c->event.proven = f->state & FLOWS_PROVEN;
	c->event.number = 0;
	return 1;
}

// wanted is the room of this CPU with what an event says of the packet, 0 where nobody wants it.
static __always_inline struct flows_cpu *wanted(void *ctx, const void *data, const void *end,
						struct capture_note *n, __u32 queue)
{
	struct segment s = {};
	struct flows_cpu *c;
	__u32 zero = 0;
	int is;

	if (!alive(n, bpf_jiffies64()) || !of_verdict(n) || !decode(data, end, &s))
		return 0;
	c = bpf_map_lookup_elem(&cpus, &zero);
	if (!c)
		return 0;
	if ((s.key.proto & 0xff) == PROTO_UDP)
		is = wanted_datagram(c, &s);
	else if (s.key.proto & FLOWS_IPV6)
		is = wanted_segment(ctx, c, &s, 1);
	else
		is = wanted_segment(ctx, c, &s, 0);
	if (!is)
		return 0;
	c->event.of.time = bpf_ktime_get_ns();
	c->event.of.id = bpf_get_smp_processor_id();
	c->event.of.slot = n->slot;
	c->event.of.verdict = n->verdict;
	c->event.of.queue = queue;
	return c;
}

// tell hands an event on; failed is whether the packet could not be read. Nobody is woken: who
// reads looks by himself.
static __always_inline void tell(struct flows_cpu *c, long failed, __u32 have)
{
	struct flows_counts *n = counted();

	if (!n)
		return;
	if (failed ||
	    bpf_ringbuf_output(&events, &c->event, sizeof(c->event) + have, BPF_RB_NO_WAKEUP))
		n->lost++;
	else
		n->told++;
}

SEC("xdp")
int flows_xdp(struct xdp_md *ctx)
{
	struct capture_note *n = note(this_cpu());

	if (!n)
		return XDP_ABORTED;

	struct flows_cpu *c = wanted(ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, n,
				     ctx->rx_queue_index);

	if (c) {
		__u32 bytes = bpf_xdp_get_buff_len(ctx), have = handed(bytes, FLOWS_SNAP);

		c->event.of.bytes = bytes;
		tell(c, bpf_xdp_load_bytes(ctx, 0, c->packet, have), have);
	}
	if (n->on & OTHER_ROLES)
		bpf_tail_call(ctx, &programs, n->on & OTHER_ROLES);
	return n->verdict;
}

SEC("tc")
int flows_tc(struct __sk_buff *ctx)
{
	struct capture_note *n = note(this_cpu());

	if (!n)
		return 2; // TC_ACT_SHOT

	struct flows_cpu *c = wanted(ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, n,
				     queue_of(ctx));

	if (c) {
		__u32 bytes = ctx->len, have = handed(bytes, FLOWS_SNAP);

		c->event.of.bytes = bytes;
		tell(c, bpf_skb_load_bytes(ctx, 0, c->packet, have), have);
	}
	if (n->on & OTHER_ROLES)
		bpf_tail_call(ctx, &programs, n->on & OTHER_ROLES);
	return n->verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const struct flows_event *unused_flows_event __attribute__((unused));
const struct flows_key *unused_flows_key __attribute__((unused));
const struct flows_flow *unused_flows_flow __attribute__((unused));
const struct flows_cpu *unused_flows_cpu __attribute__((unused));
const struct flows_counts *unused_flows_counts __attribute__((unused));
