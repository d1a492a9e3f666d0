// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Streams of TCP that rules search. The program at egress notes with which byte the client of a
// connection begins, as the answer to its SYN says. The functions at ingress tell which bytes of a
// segment are the next of its stream, and keep the state of each search between segments. No byte
// is kept.
#include "flow.h"

#define TCX_NEXT -1
#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define ACK 0x10
#define URG 0x20

struct stream_head {
	__u64 start, last;           // of the hash of a flow, as in struct flow_head
	__u64 factors[FLOW_FACTORS]; //
	__u64 clock;                 // jiffies for tests, 0 for those of the kernel
	__u32 second;                // in jiffies
	__u32 idle;                  // after which a stream may lose its place
	__u32 shakes;                // how long a client may take to acknowledge
	__u32 unused;
	__u64 begun;                 // streams whose handshake was seen
	__u64 gaps;                  // segments that were not the next
	__u64 refused;               // streams that found no place
	__u64 taken;                 // places taken from streams that were not idle
	__u64 rest[3];
};

_Static_assert(offsetof(struct stream_head, factors) == offsetof(struct flow_head, factors),
	       "flow_hash reads both");
_Static_assert(sizeof(struct stream_head) % 64 == 0, "lines lie in cache lines");

// A place is where a stream begins, or how far a search of it has come.
struct stream_place {
	__u32 tag;   // of the flow's hash
	__u32 first; // the number of the first byte
	__u32 id;    // of the search, 0 of the beginning
	__u32 seen;  // jiffies
	// Of a search: how many bytes are behind it, above its state. Of a beginning: what the client
	// has to acknowledge, above STREAM_SHAKES until it has.
	__u64 is;
};

#define STREAM_LINE 8
#define STREAM_LINES (1 << 15)
#define STREAM_FREE 0 // the tag of an empty place
#define STREAM_SHAKES 1

struct stream_memory {
	struct stream_head head;
	struct stream_place places[STREAM_LINES][STREAM_LINE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream_memory);
} streams SEC(".maps");

// Which ports of this side are searched.
struct stream_ports {
	__u64 bits[(1 << 16) / 64];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream_ports);
} searched SEC(".maps");

// A segment that comes in is known by 47 bits of its hash.
static __always_inline struct stream_place *line_of(struct stream_memory *m, __u64 hash)
{
	return m->places[hash >> 32 & (STREAM_LINES - 1)];
}

static __always_inline __u32 tag_of(__u64 hash)
{
	__u32 tag = hash;

	return tag == STREAM_FREE ? 1 : tag;
}

// some is 1 of a number that is not 0, and below is 1 where a is below b, both below 2^63. What is
// made of them has no branches: verifiers follow one way, and not one for each place.
static __always_inline __u64 some(__u64 n)
{
	__u64 negated = -n;

	// Where clang sees that it is a compare, it makes branches of it.
	asm volatile("" : "+r"(negated));
	n = (n | negated) >> 63;
	asm volatile("" : "+r"(n));
	return n;
}

static __always_inline __u64 below(__u64 a, __u64 b)
{
	a = (a - b) >> 63;
	asm volatile("" : "+r"(a));
	return a;
}

static __always_inline __u32 now_of(const struct stream_memory *m)
{
	__u64 now = bpf_jiffies64(); // first: what a call must keep takes stack

	asm volatile("" : "+r"(now) : : "memory");

	__u32 clock = m->head.clock;

	return clock | (now & (some(clock) - 1));
}

// worth orders places by which gives way first: empty ones, then flows without a handshake, then
// idle flows. Flows that send keep their places (KEEPS and above).
#define KEEPS (3ULL << 32)
static __always_inline __u64 worth(const struct stream_head *h, const struct stream_place *p,
				   __u32 now)
{
	__u32 age = now - p->seen, young = ~age;
	__u64 shakes = (some(p->id) ^ 1) & p->is & STREAM_SHAKES;
	__u64 limit = shakes * h->shakes + (shakes ^ 1) * h->idle, old = below(limit, age);

	// Who has shaken hands and is not idle has KEEPS, and 2 << 32 | young if he is; who shakes them
	// 1 << 32 | young, and 1 if it takes him too long.
	__u64 is = KEEPS - shakes * ((2ULL << 32) - young);
	__u64 less = (1ULL << 32) - young + shakes * (2ULL * young - 1);

	return some(p->tag ^ STREAM_FREE) * (is - old * less);
}

// stream_take returns the index in its line of the place that a new entry of a flow takes, -1 if
// there is none.
static __noinline int stream_take(__u64 hash)
{
	__u32 zero = 0;
	struct stream_memory *m = bpf_map_lookup_elem(&streams, &zero);
	__u64 least = KEEPS * STREAM_LINE; // above the number of the place

	if (!m)
		return -1;
	const struct stream_place *line = line_of(m, hash);

	for (int i = 0; i < STREAM_LINE; i++) {
		// What is read again takes no stack, of which callers leave little.
		__u64 is = worth(&m->head, &line[i], now_of(m)) * STREAM_LINE + i;

		least -= below(is, least) * (least - is);
	}
	if (least >= KEEPS * STREAM_LINE) {
		__sync_fetch_and_add(&m->head.refused, 1);
		return -1;
	}
	if (least >= 2 * STREAM_LINE)
		__sync_fetch_and_add(&m->head.taken, 1);
	least &= STREAM_LINE - 1;
	// What clang knew of the place, verifiers would not: they see callers by themselves.
	asm volatile("" : "+r"(least));
	return least;
}

// find returns the index in its line of the place of a flow's search, -1 if there is none.
static __always_inline int find(const struct stream_place *line, __u32 tag, __u32 id)
{
	__u32 at = 0;

	for (__u32 i = 0; i < STREAM_LINE; i++) {
		__u64 other = (line[i].tag ^ tag) | (line[i].id ^ id);
		__u64 same = (other - 1) >> 63;

		asm volatile("" : "+r"(same));
		at += same * (i + 1);
	}
	return (int)at - 1;
}

// What is known of a segment, as package stream has it.
// STREAM_ABSENT is of a search that has no place yet.
enum stream_answer { STREAM_NO, STREAM_YES, STREAM_UNKNOWN, STREAM_NONE, STREAM_ABSENT };

#define STREAM_MOST (16 << 10) // bytes of a stream
#define STREAM_ACCEPT 256      // the state in which something is found

static __always_inline __u32 word(const __u8 *p)
{
	return (__u32)p[0] << 24 | (__u32)p[1] << 16 | (__u32)p[2] << 8 | p[3];
}

// A segment whose bytes can be searched: its sequence number, above the bytes that it has, above
// the length of its header. That is more than any answer.
#define SEGMENT(seq, data, header) ((__u64)(seq) << 32 | (data) << 16 | (header))

// meet has the client of a connection shake hands, and gives a segment that can be searched. place
// is where the TCP header begins, and the bytes from there on above it.
static __always_inline __u64 meet(void *ctx, __u64 hash, __u32 place, int hook)
{
	__u32 zero = 0, left = place >> 16, header;
	struct stream_memory *m = bpf_map_lookup_elem(&streams, &zero);
	__u8 b[10]; // from the sequence number to the flags
	long failed;

	if (hook == HOOK_TCX)
		failed = bpf_skb_load_bytes(ctx, (place & 0xffff) + 4, b, sizeof(b));
	else
		failed = bpf_xdp_load_bytes(ctx, (place & 0xffff) + 4, b, sizeof(b));
	header = (b[8] >> 4) * 4;
	if (!m || failed || header < 20 || left < header)
		return STREAM_NONE;
	left -= header;

	struct stream_place *line = line_of(m, hash);
	int at = find(line, tag_of(hash), 0), none = left ? STREAM_UNKNOWN : STREAM_NONE;

	if (at < 0)
		return none;
	struct stream_place *p = &line[at & (STREAM_LINE - 1)];
	__u32 now = now_of(m);

	if (p->is & STREAM_SHAKES) {
		if ((b[9] & (SYN | RST | ACK)) != ACK || word(b + 4) != p->is >> 32 ||
		    now - p->seen > m->head.shakes)
			return none;
		p->is -= STREAM_SHAKES;
		p->seen = now;
		__sync_fetch_and_add(&m->head.begun, 1);
	}
	if (!left || (b[9] & (SYN | RST | ACK | URG)) != ACK)
		return none;
	if (now - p->seen >= m->head.second)
		p->seen = now;
	return SEGMENT(word(b), left, header);
}

static __noinline __u64 stream_meet_xdp(struct xdp_md *ctx, __u64 hash, __u32 place)
{
	return meet(ctx, hash, place, HOOK_XDP);
}

static __noinline __u64 stream_meet_tcx(struct __sk_buff *ctx, __u64 hash, __u32 place)
{
	return meet(ctx, hash, place, HOOK_TCX);
}

// stream_enter gives a flow's search a place, and sets its state for the first byte. It returns
// STREAM_UNKNOWN if there is no place. It is a function apart from stream_seek, since together they
// need more stack than callers leave.
static __noinline int stream_enter(__u64 hash, __u32 id, __u32 start)
{
	__u32 zero = 0;
	struct stream_memory *m = bpf_map_lookup_elem(&streams, &zero);

	if (!m)
		return STREAM_UNKNOWN;
	struct stream_place *line = line_of(m, hash), *p;
	int at = find(line, tag_of(hash), id);

	if (at < 0)
		at = stream_take(hash);
	if (at < 0)
		return STREAM_UNKNOWN;
	p = &line[at & (STREAM_LINE - 1)];
	at = find(line, tag_of(hash), 0);
	if (at < 0)
		return STREAM_UNKNOWN;
	p->first = line[at & (STREAM_LINE - 1)].first;
	p->tag = tag_of(hash);
	p->id = id;
	p->is = start;
	p->seen = now_of(m);
	return STREAM_ABSENT;
}

// stream_seek tells which bytes of a segment continue a search. The result has in bits 0-15 the
// offset of these bytes in the frame, in 16-29 their number less one, in 30-43 how many bytes of
// the stream are searched already, and above that a quarter of the search's state. A result without
// a state is an answer (STREAM_*). off is the offset of the TCP header. The low bits of id name the
// search, the high ones say how many bytes of a stream it reads.
static __noinline __u64 stream_seek(__u64 hash, __u64 segment, __u32 off, __u64 id)
{
	__u32 zero = 0, data = segment >> 16 & 0xffff;
	struct stream_memory *m = bpf_map_lookup_elem(&streams, &zero);

	if (!m)
		return STREAM_UNKNOWN;
	struct stream_place *line = line_of(m, hash), *p;
	int at = find(line, tag_of(hash), 0);

	if (at < 0)
		return STREAM_UNKNOWN;
	__u32 first = line[at & (STREAM_LINE - 1)].first, now = now_of(m);

	at = find(line, tag_of(hash), id);
	p = &line[at & (STREAM_LINE - 1)];
	if (at < 0 || p->first != first)
		return STREAM_ABSENT;
	if (now - p->seen >= m->head.second)
		p->seen = now;

	__u64 is = p->is;
	__u32 pos = is >> 32, skip = pos - ((segment >> 32) - first), within = id >> 32;

	if ((__u32)is == STREAM_ACCEPT)
		return STREAM_YES;
	if (pos >= within)
		return STREAM_NO;
	if ((__s32)skip < 0) {
		__sync_fetch_and_add(&m->head.gaps, 1);
		return STREAM_UNKNOWN;
	}
	if (skip >= data)
		return STREAM_NO; // a repeat of bytes already searched
	data -= skip;
	off += (segment & 0xff) + skip;
	if (off > 0xffff)
		return STREAM_UNKNOWN;
	if (data > within - pos)
		data = within - pos;
	return (is & 0xffffffff) >> 2 << 44 | (__u64)(pos & (STREAM_MOST - 1)) << 30 |
	       (__u64)((data - 1) & (STREAM_MOST - 1)) << 16 | off;
}

// stream_note has a search be in a state behind the bytes that seek gave, unless another CPU has
// come farther, and tells whether something was found.
static __noinline int stream_note(__u64 hash, __u32 id, __u64 sought, __u32 state)
{
	__u32 zero = 0, pos = sought >> 30 & (STREAM_MOST - 1);
	__u32 bytes = (sought >> 16 & (STREAM_MOST - 1)) + 1;
	struct stream_memory *m = bpf_map_lookup_elem(&streams, &zero);
	__u64 was = (__u64)pos << 32 | (sought >> 44 << 2);

	if (!m)
		return STREAM_UNKNOWN;
	struct stream_place *line = line_of(m, hash);
	int at = find(line, tag_of(hash), id);

	if (at >= 0)
		__sync_val_compare_and_swap(&line[at & (STREAM_LINE - 1)].is, was,
					    (__u64)(pos + bytes) << 32 | state);
	return state == STREAM_ACCEPT ? STREAM_YES : STREAM_NO;
}

// begin notes with which byte the client of a connection begins, and what it has to acknowledge.
__noinline int begin(struct __sk_buff *ctx, const struct key *k)
{
	__u32 zero = 0;
	struct stream_memory *m = bpf_map_lookup_elem(&streams, &zero);
	const struct stream_ports *ports = bpf_map_lookup_elem(&searched, &zero);
	__u8 b[8]; // the sequence number, and what is acknowledged

	if (!m || !ports || !k || (k->class != CLASS(0, TCP, 0) && k->class != CLASS(1, TCP, 0)))
		return TCX_NEXT;
	if ((k->tcp_flags & (SYN | ACK | RST)) != (SYN | ACK))
		return TCX_NEXT;
	if (!(ports->bits[k->src_port >> 6 & 1023] >> (k->src_port & 63) & 1) ||
	    bpf_skb_load_bytes(ctx, k->off + 4, b, sizeof(b)))
		return TCX_NEXT;

	__u64 hash = flow_hash((const struct flow_head *)&m->head, k, k->class == CLASS(1, TCP, 0),
			       (__u32)k->src_port << 16 | k->dst_port);
	__u64 waits = (__u64)(word(b) + 1) << 32 | STREAM_SHAKES;
	struct stream_place *line = line_of(m, hash);
	int at = find(line, tag_of(hash), 0), known = at >= 0;

	if (!known)
		at = stream_take(hash);
	if (at < 0)
		return TCX_NEXT;
	struct stream_place *p = &line[at & (STREAM_LINE - 1)];

	p->seen = now_of(m);
	if (known && p->first == word(b + 4) && (p->is | STREAM_SHAKES) == waits)
		return TCX_NEXT; // said again
	p->tag = tag_of(hash);
	p->id = 0;
	p->is = waits;
	p->first = word(b + 4);
	// What is known is of other bytes, also where the client has chosen the same number again.
	for (int i = 0; i < STREAM_LINE; i++)
		if (line[i].tag == p->tag && line[i].id)
			line[i].tag = STREAM_FREE;
	return TCX_NEXT;
}

// is_other tells most packets that leave and are no SYN-ACK, of a type of IP that begins at off,
// without the decoder. It says 0 of those that it does not know.
static __always_inline int is_other(struct __sk_buff *ctx, __u16 type, __u32 off)
{
	const void *end = (void *)(long)ctx->data_end;
	const struct ipv4 *ip = (void *)(long)ctx->data + off;
	const struct ipv6 *ip6 = (const void *)ip;
	const __u8 *tcp;
	__u8 proto;

	if (type == 0x0800) {
		tcp = (const void *)(ip + 1);
		if (tcp > (const __u8 *)end || ip->version_ihl != 0x45)
			return 0;
		proto = ip->proto;
	} else {
		tcp = (const void *)(ip6 + 1);
		if (type != 0x86dd || tcp > (const __u8 *)end ||
		    (ip6->flow & bpf_htonl(0xf0000000)) != bpf_htonl(6U << 28))
			return 0;
		proto = ip6->next;
	}
	if (proto != 6)
		return proto == 17;
	return tcp + 14 <= (const __u8 *)end && (tcp[13] & (SYN | ACK)) != (SYN | ACK);
}

SEC("tc")
int begin_ethernet(struct __sk_buff *ctx)
{
	const __be16 *type = (void *)(long)ctx->data + 12;

	if ((const void *)(type + 1) <= (void *)(long)ctx->data_end &&
	    is_other(ctx, bpf_ntohs(*type), 14))
		return TCX_NEXT;

	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};
	struct key k = {};

	if (parse_ethernet(&f, &k, HOOK_TCX))
		return TCX_NEXT;
	return begin(ctx, &k);
}

SEC("tc")
int begin_ip(struct __sk_buff *ctx)
{
	const __u8 *first = (void *)(long)ctx->data;

	if ((const void *)(first + 1) <= (void *)(long)ctx->data_end &&
	    is_other(ctx, *first >> 4 == 4 ? 0x0800 : 0x86dd, 0))
		return TCX_NEXT;

	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};
	struct key k = {};

	if (parse_ip(&f, &k, HOOK_TCX))
		return TCX_NEXT;
	return begin(ctx, &k);
}

// These are here only so that the object holds whole programs. The compiler must not know anything
// of the numbers: what it knows of them, it takes for known in the functions.
static __always_inline __u64 any(void)
{
	__u64 n = bpf_ktime_get_ns();

	asm volatile("" : "+r"(n));
	return n;
}

SEC("xdp")
int entry_xdp(struct xdp_md *ctx)
{
	return stream_meet_xdp(ctx, any(), any()) + stream_seek(any(), any(), any(), any()) +
	       stream_enter(any(), any(), any()) +
	       stream_note(any(), any(), any(), any());
}

SEC("tc")
int entry_tcx(struct __sk_buff *ctx)
{
	return stream_meet_tcx(ctx, any(), any()) + stream_seek(any(), any(), any(), any()) +
	       stream_enter(any(), any(), any()) +
	       stream_note(any(), any(), any(), any());
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const enum stream_answer *unused_stream_answer __attribute__((unused));
