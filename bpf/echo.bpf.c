// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Proof by echo. The program at egress notes bytes of replies together with the client that
// receives them. The functions at ingress find these bytes in the client's packets, and count its
// flow as proven from then on.
#include "a2s.h"
#include "answer.h"
#include "echo.h"

#define TCX_NEXT -1
#define ECHO_FORMS 16 // `prove` statements of a policy
#define ECHO_PORTS 8  // ranges of ports of a statement
#define ECHO_TERMS 8  // eight bytes each of what replies have to match
#define ECHO_AT 4     // places in packets of clients
#define ECHO_LEAST 4  // bytes of a value
#define ECHO_MOST 20

struct echo_ports {
	__u16 lo, hi;
};

// Bytes of a reply, 8 at most, and which of their bits count.
struct echo_term {
	__u64 value, mask; // as a load has them of the 8 bytes that end where these end
	__u32 end;	   // behind the UDP header
	__u32 differs;	   // 1: the reply has other bytes there
};

// Who made the value that a client sends back.
enum echo_made {
	ECHO_SERVICE, // a `prove` statement: replies have it
	ECHO_A2S,     // a cookie for A2S made it of the flow and the time
};

// What has to come back.
struct echo_form {
	__u32 id;    // of its name
	__u32 tally; // which of the memory's is its own
	__u32 bytes; // of the value
	__u32 at;    // behind the UDP header of a reply
	__u32 in[ECHO_AT]; // behind that of a client's packet, the first of them first
	__u32 ins, terms, ranges;
	__u32 made; // by whom the value is, enum echo_made
	struct echo_ports ports[ECHO_PORTS];
	struct echo_term term[ECHO_TERMS];
};

struct echo_forms {
	__u32 n, unused;
	struct echo_form form[ECHO_FORMS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct echo_forms);
} forms SEC(".maps");

// What is hashed of a value: its flow, and 24 bytes that end with its own, behind zeroes and, first
// of all, the number of its form. It is read where it is hashed: functions of a program share 512
// bytes of stack.
struct value {
	__u64 flow;
	__u64 words[3];
};

// Mixing of sums, which are not evenly distributed: constants of MurmurHash3's finalizer.
#define MIX_A 0xff51afd7ed558ccdULL
#define MIX_B 0xc4ceb9fe1a85ec53ULL

// value_hash is the hash of a value that a flow was given, with the lowest bit set. The value is
// summed up twice (NH, RFC 4418 section 5.2.2, with Toeplitz keys), and the sums are mixed with the
// flow. Two values that differ in their highest bit alone have sums that differ in the upper 33
// bits alone: the first sum is spread over all bits before the second is added. Nobody sees a hash,
// so it need not keep the keys secret from who does, as SipHash would. The keys are what the hash
// of a flow leaves of its factors, and those of numbers.
static __always_inline __u64 value_hash(const struct echo_head *h, const struct value *v)
{
	const __u64 keys[] = {h->key[0], h->key[1], h->factors[10], h->factors[11]};
	__u64 a = 0, b = 0;

	for (int i = 0; i < 3; i++) {
		__u32 lo = v->words[i], hi = v->words[i] >> 32;

		a += (__u64)(__u32)(lo + keys[i]) * (__u32)(hi + (keys[i] >> 32));
		b += (__u64)(__u32)(lo + keys[i + 1]) * (__u32)(hi + (keys[i + 1] >> 32));
	}
	a = (a ^ v->flow) * MIX_A;
	a ^= a >> 32;
	return ((a + b) * MIX_B) >> TIME_BITS | 1;
}

// find_value says in which place a value is, -1 if in none.
static __always_inline int find_value(const __u64 *line, __u64 value)
{
	for (int i = 0; i < ECHO_LINE; i++)
		if (line[i] >> TIME_BITS == value)
			return i;
	return -1;
}

// age_of is the age of a value and a second more: a CPU may be behind the one that wrote it.
static __always_inline __u32 age_of(const struct echo_head *h, __u64 word, __u32 now)
{
	return (now - (__u32)word + h->second) & TIME_MASK;
}

// mark_time is a time as marks have it, never 0.
static __always_inline __u8 mark_time(const struct echo_head *h, __u64 jiffies)
{
	__u8 time = jiffies >> (h->unit & 63);

	return time ? time : 1;
}

// may_hold says whether some flow of a line was given a value that may come back still. In units a
// value is two older at most than it holds, as its age may begin late in one and 0 is no time; and
// two younger than it was, as a CPU may also be behind the one that gave it by a second.
static __always_inline int may_hold(const struct echo_memory *m, __u32 line)
{
	__u8 given = m->marks[line].given, now = mark_time(&m->head, echo_clock(m));
	__u8 age = now - given + 2;

	return given && age <= (m->head.holds >> (m->head.unit & 63)) + 4;
}

// give notes that a flow was given a value, in place of the oldest in its line.
static __always_inline void give(struct echo_memory *m, const struct echo_form *f,
				 const struct value *v)
{
	__u64 hash = value_hash(&m->head, v);
	__u32 now = echo_clock(m), most = 0, at = 0;
	__u64 *line = m->values[line_of(v->flow)];
	const __u64 *factors = m->head.factors;
	__u32 class = (v->words[0] * factors[0] + v->words[1] * factors[1] +
		       v->words[2] * factors[2]) >> 54;

	for (int i = 0; i < ECHO_LINE; i++) {
		__u64 word = line[i];
		__u32 age = word ? age_of(&m->head, word, now) : TIME_MASK;

		if (word >> TIME_BITS == hash) {
			at = i;
			break;
		}
		if (age >= most) {
			most = age;
			at = i;
		}
	}
	line[at & (ECHO_LINE - 1)] = hash << TIME_BITS | (now & TIME_MASK);
	m->marks[line_of(v->flow)].given = mark_time(&m->head, echo_clock(m));
	note_given(tally_of(m, f->tally), class);
}

// was_given says whether a flow was given a value of late.
static __always_inline int was_given(struct echo_memory *m, const struct value *v)
{
	__u64 hash = value_hash(&m->head, v);
	const __u64 *line = m->values[line_of(v->flow)];
	int at = find_value(line, hash);

	return at >= 0 && age_of(&m->head, line[at & (ECHO_LINE - 1)], echo_clock(m)) <=
				  m->head.holds + m->head.second;
}

// is_proven says whether a flow is, and has it be for as long again. A lease is renewed once a
// second at most.
static __always_inline int is_proven(struct echo_memory *m, __u64 flow, int renews)
{
	__u32 line = line_of(flow), now = echo_clock(m);
	__u64 tag = flow_word(flow, 0) >> 32;

	if (!(m->marks[line].tags & 1 << (tag >> 1 & 7)))
		return 0;
	for (int i = 0; i < ECHO_LINE; i++) {
		__u64 *place = &m->flows[line][i], word = *place;

		if (word >> 32 != tag)
			continue;
		__u32 rest = left(&m->head, word, now);

		if (renews && rest && m->head.lease - rest >= 2 * m->head.second)
			*place = flow_word(flow, now + m->head.lease - m->head.second);
		return rest != 0;
	}
	return 0;
}

// word_at reads the 8 bytes at off. A call takes longer than most else here: only what lies outside
// the first buffer takes one.
static __always_inline long word_at(void *ctx, __u32 off, __u64 *word, int hook)
{
	void *data, *end;

	if (hook == HOOK_TCX) {
		data = (void *)(long)((struct __sk_buff *)ctx)->data;
		end = (void *)(long)((struct __sk_buff *)ctx)->data_end;
	} else {
		data = (void *)(long)((struct xdp_md *)ctx)->data;
		end = (void *)(long)((struct xdp_md *)ctx)->data_end;
	}
	data += off & 0x7fff;
	if (data + sizeof(*word) <= end) {
		*word = *(__u64 *)data;
		return 0;
	}
	if (hook == HOOK_TCX)
		return bpf_skb_load_bytes(ctx, off, word, sizeof(*word));
	return bpf_xdp_load_bytes(ctx, off, word, sizeof(*word));
}

// last_bytes are the last n of 8 bytes, behind zeroes.
static __always_inline __u64 last_bytes(__u64 word, __s32 n)
{
	__u32 shift = (8 - n) * 8;

	if (n <= 0)
		return 0;
	return n >= 8 ? word : word >> (shift & 63) << (shift & 63);
}

// read_value reads the value of a form at the offset at behind the UDP header. The UDP header is at
// off, and the packet has left bytes from there. The headers in front are longer than one load, so
// that a load that ends at the value never begins before the packet.
static __always_inline int read_value(void *ctx, __u32 off, __u32 left, __u32 at,
				      const struct echo_form *f, struct value *v, int hook)
{
	__s32 n = f->bytes;
	__u32 end = off + UDP_HEADER + at + n;

	if (n < ECHO_LEAST || n > ECHO_MOST || left < UDP_HEADER + at + n || off < 20)
		return 0;
	for (int i = 2; i >= 0; i--) {
		v->words[i] = 0;
		if (n <= 0)
			continue;
		if (word_at(ctx, end - (3 - i) * 8, &v->words[i], hook))
			return 0;
		v->words[i] = last_bytes(v->words[i], n);
		n -= 8;
	}
	v->words[0] |= f->id;
	return 1;
}

static __always_inline int is_service(const struct echo_form *f, __u32 port)
{
	for (int i = 0; i < ECHO_PORTS; i++) {
		if (i >= f->ranges)
			return 0;
		if (f->ports[i].lo <= port && port <= f->ports[i].hi)
			return 1;
	}
	return 0;
}

// What a packet has at a place where a value may be, as bits.
enum { ECHO_NOTHING, ECHO_WRONG, ECHO_PROOF };

// look_a2s looks at a place of a query for the number that a cookie gave its flow. The type of the
// query says where the number stands. Packets other than queries have no number, nor have queries
// that ask for one.
static __always_inline int look_a2s(void *ctx, const struct echo_memory *m, __u32 off, __u32 at,
				    const struct value *v, int hook)
{
	__u32 said = v->words[2] >> 32;
	__u64 period = number_period(m), head;

	if (word_at(ctx, off + UDP_HEADER + A2S_HEAD - sizeof(head), &head, hook) ||
	    at != a2s_place(head >> (8 * (sizeof(head) - A2S_HEAD))))
		return ECHO_NOTHING;
	if (said == number(&m->head, v->flow, period - ((period ^ said) & 1)))
		return ECHO_PROOF;
	return said == A2S_NONE ? ECHO_NOTHING : ECHO_WRONG;
}

// look looks at one place of a packet for what its flow was given in replies of form i. Verifiers
// see it once, not for each form and place.
static __always_inline int look(void *ctx, __u64 flow, __u32 place, __u32 i, __u32 at, int hook)
{
	__u32 zero = 0;
	struct echo_memory *m = bpf_map_lookup_elem(&echoes, &zero);
	const struct echo_forms *all = bpf_map_lookup_elem(&forms, &zero);
	struct value v = {flow};

	if (!m || !all)
		return ECHO_NOTHING;
	const struct echo_form *f = &all->form[i & (ECHO_FORMS - 1)];

	if (!read_value(ctx, place & 0xffff, place >> 16, at, f, &v, hook))
		return ECHO_NOTHING;
	if (f->made == ECHO_A2S)
		return look_a2s(ctx, m, place & 0xffff, at, &v, hook);
	return was_given(m, &v) ? ECHO_PROOF : ECHO_WRONG;
}

static __noinline int echo_look_xdp(struct xdp_md *ctx, __u64 flow, __u32 place, __u32 i, __u32 at)
{
	return look(ctx, flow, place, i, at, HOOK_XDP);
}

static __noinline int echo_look_tcx(struct __sk_buff *ctx, __u64 flow, __u32 place, __u32 i,
				    __u32 at)
{
	return look(ctx, flow, place, i, at, HOOK_TCX);
}

// echo_prove has a flow count as proven, and says whether it does.
static __noinline int echo_prove(__u64 flow)
{
	__u32 zero = 0;
	struct echo_memory *m = bpf_map_lookup_elem(&echoes, &zero);

	return m ? prove_flow(m, flow) : 0;
}

// tell looks in a packet for what its flow was given. place is where the UDP header begins, and the
// bytes from there on above it; port is that of the service. What replies gave is looked for where
// the line may hold something: a stranger's packet is of some length, and has a wrong value there.
// Where it looks is a number, and no branch, which the verifier would walk in each form twice.
static __always_inline int tell(void *ctx, __u64 flow, __u32 place, __u32 port, int hook)
{
	WORDS struct {
		__u32 zero, may;
	} slots = {};
	struct echo_memory *m = bpf_map_lookup_elem(&echoes, &slots.zero);
	const struct echo_forms *all = bpf_map_lookup_elem(&forms, &slots.zero);

	if (!m || !all)
		return 0;
	__u32 may = forget_word(&slots.may, may_hold(m, line_of(flow)));

	for (int i = 0; i < ECHO_FORMS; i++) {
		const struct echo_form *f = &all->form[i];
		__u32 looks = may | f->made; // what a cookie made is in no line
		int found = ECHO_NOTHING;

		if (i >= all->n)
			break;
		if (!is_service(f, port))
			continue;
		for (int j = 0; j < ECHO_AT; j++) {
			int is;

			if (j >= f->ins * looks)
				break;
			is = hook == HOOK_TCX ? echo_look_tcx(ctx, flow, place, i, f->in[j]) :
						echo_look_xdp(ctx, flow, place, i, f->in[j]);
			found |= is;
			if (is & ECHO_PROOF)
				break;
		}
		if (found & ECHO_PROOF) {
			__sync_fetch_and_add(&row_of(tally_of(m, f->tally))->proofs, 1);
			return echo_prove(flow);
		}
		if (found || (!looks && (place >> 16) >= UDP_HEADER + f->in[0] + f->bytes))
			__sync_fetch_and_add(&row_of(tally_of(m, f->tally))->wrong, 1);
	}
	return 0;
}

static __noinline int echo_tell_xdp(struct xdp_md *ctx, __u64 flow, __u32 place, __u32 port)
{
	return tell(ctx, flow, place, port, HOOK_XDP);
}

static __noinline int echo_tell_tcx(struct __sk_buff *ctx, __u64 flow, __u32 place, __u32 port)
{
	return tell(ctx, flow, place, port, HOOK_TCX);
}

// echo_proven says whether a flow is proven, which renews it.
static __noinline int echo_proven(__u64 flow)
{
	__u32 zero = 0;
	struct echo_memory *m = bpf_map_lookup_elem(&echoes, &zero);

	return m ? is_proven(m, flow, 1) : 0;
}

// echo_seen says it for a shadow, which changes nothing.
static __noinline int echo_seen(__u64 flow)
{
	__u32 zero = 0;
	struct echo_memory *m = bpf_map_lookup_elem(&echoes, &zero);

	return m ? is_proven(m, flow, 0) : 0;
}

// has_term says whether a packet has one of the pieces that a form requires of replies. The UDP
// header is at off with more than 8 bytes before it, and the packet has left bytes from there.
static __always_inline int has_term(struct __sk_buff *ctx, const struct echo_term *t, __u32 off,
				    __u32 left)
{
	__u64 word;

	return left >= UDP_HEADER + t->end &&
	       !word_at(ctx, off + UDP_HEADER - sizeof(word) + t->end, &word, HOOK_TCX) &&
	       ((word & t->mask) != t->value) == t->differs;
}

// learn_form notes what a reply has of form i, if it has what is behind the first term, too; place
// is as tell has it.
__noinline int learn_form(struct __sk_buff *ctx, __u64 flow, __u32 place, __u32 i)
{
	__u32 zero = 0, off = place & 0xffff, left = place >> 16;
	struct echo_memory *m = bpf_map_lookup_elem(&echoes, &zero);
	const struct echo_forms *all = bpf_map_lookup_elem(&forms, &zero);
	struct value v = {flow};

	if (!m || !all)
		return 0;
	const struct echo_form *f = &all->form[i & (ECHO_FORMS - 1)];

	for (int j = 1; j < ECHO_TERMS; j++) {
		if (j >= f->terms)
			break;
		if (!has_term(ctx, &f->term[j], off, left))
			return 0;
	}
	if (!read_value(ctx, off, left, f->at, f, &v, HOOK_TCX))
		return 0;
	give(m, f, &v);
	return 1;
}

// A datagram that leaves: its UDP header begins at off, from where left bytes are there.
struct datagram {
	__u64 flow; // the hash, where nothing says otherwise
	__u32 off, left;
	__u16 src_port, dst_port;
};

// flow_of is the hash of the flow of a datagram behind an IP header.
static __always_inline __u64 flow_of(const struct echo_memory *m, const struct datagram *d,
				     const void *at, int six)
{
	struct key k;

	k.proto = 17;
	if (six) {
		const struct ipv6 *ip = at;

		k.src_hi = bpf_be64_to_cpu(ip->src_hi);
		k.src_lo = bpf_be64_to_cpu(ip->src_lo);
		k.dst_hi = bpf_be64_to_cpu(ip->dst_hi);
		k.dst_lo = bpf_be64_to_cpu(ip->dst_lo);
	} else {
		const struct ipv4 *ip = at;

		k.src_hi = bpf_ntohl(ip->src);
		k.dst_hi = bpf_ntohl(ip->dst);
	}
	return flow_hash((const struct flow_head *)&m->head, &k, six,
			 (__u32)d->src_port << 16 | d->dst_port);
}

// learn notes what a datagram gives its client. ip is the IP header of a common packet, of whose
// flow the hash is still to be made, else NULL. Most of what leaves is of no service, or no reply
// that has a value: that is found out without a call and without a hash. The numbers of a cookie
// are no replies: whoever forges queries would fill the memory with them.
static __always_inline void learn(struct __sk_buff *ctx, const struct datagram *d, const void *ip,
				  int six)
{
	__u32 zero = 0;
	const struct echo_memory *m = bpf_map_lookup_elem(&echoes, &zero);
	const struct echo_forms *all = bpf_map_lookup_elem(&forms, &zero);

	if (!m || !all || is_own(ctx))
		return;
	for (int i = 0; i < ECHO_FORMS; i++) {
		const struct echo_form *f = &all->form[i];

		if (i >= all->n)
			break;
		if (f->made == ECHO_SERVICE && is_service(f, d->src_port) &&
		    (!f->terms || has_term(ctx, &f->term[0], d->off, d->left)))
			learn_form(ctx, ip ? flow_of(m, d, ip, six) : d->flow,
				   d->left << 16 | d->off, i);
	}
}

struct udp {
	__be16 src, dst, len, check;
};

// common_udp takes what the left bytes from a UDP header on say, if parse_transport would; it says
// 0 of what the careful decoder has to see.
static __always_inline int common_udp(struct __sk_buff *ctx, const void *ip, const struct udp *u,
				      __u32 off, __u32 left, int six)
{
	__u32 len = bpf_ntohs(u->len);
	const struct datagram d = {0, off, len, bpf_ntohs(u->src), bpf_ntohs(u->dst)};

	if (len < sizeof(*u) || len > left)
		return 0;
	learn(ctx, &d, ip, six);
	return 1;
}

static __always_inline int common_ipv4(struct __sk_buff *ctx, __u32 off)
{
	const struct ipv4 *ip = (void *)(long)ctx->data + off;
	const struct udp *u = (const void *)(ip + 1);

	if ((const void *)(u + 1) > (void *)(long)ctx->data_end || ip->version_ihl != 0x45)
		return 0;
	__u32 total = bpf_ntohs(ip->tot_len);

	if (ip->frag_off & bpf_htons(0x3fff) || total < sizeof(*ip) + sizeof(*u) ||
	    total > ctx->len - off)
		return 0;
	if (ip->proto != 17)
		return 1;
	return common_udp(ctx, ip, u, off + sizeof(*ip), total - sizeof(*ip), 0);
}

static __always_inline int common_ipv6(struct __sk_buff *ctx, __u32 off)
{
	const struct ipv6 *ip = (void *)(long)ctx->data + off;
	const struct udp *u = (const void *)(ip + 1);

	if ((const void *)(u + 1) > (void *)(long)ctx->data_end ||
	    (ip->flow & bpf_htonl(0xf0000000)) != bpf_htonl(6U << 28))
		return 0;
	__u32 left = bpf_ntohs(ip->len);

	if (left < sizeof(*u) || sizeof(*ip) + left > ctx->len - off)
		return 0;
	if (ip->next != 17)
		return ip->next == 6;
	return common_udp(ctx, ip, u, off + sizeof(*ip), left, 1);
}

// common takes what most packets that leave are: IP of a type that begins at off, without options
// and whole. It says 0 of others, which the careful decoder takes.
static __always_inline int common(struct __sk_buff *ctx, __u16 type, __u32 off)
{
	if (type == 0x0800)
		return common_ipv4(ctx, off);
	return type == 0x86dd && common_ipv6(ctx, off);
}

// found_datagram says whether a decoded packet is a datagram, and what learn has to know of it.
__noinline int found_datagram(const struct key *k, struct datagram *d)
{
	__u32 zero = 0;
	const struct echo_memory *m = bpf_map_lookup_elem(&echoes, &zero);

	if (!m || !k || !d || (k->class != CLASS(0, UDP, 0) && k->class != CLASS(1, UDP, 0)))
		return 0;
	d->flow = flow_hash((const struct flow_head *)&m->head, k, k->class == CLASS(1, UDP, 0),
			    (__u32)k->src_port << 16 | k->dst_port);
	d->off = k->off;
	d->left = k->left;
	d->src_port = k->src_port;
	return 1;
}

__noinline int careful_ethernet(struct __sk_buff *ctx, struct datagram *d)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};
	struct key k = {};

	return d && !parse_ethernet(&f, &k, HOOK_TCX) && found_datagram(&k, d);
}

SEC("tc")
int learn_ethernet(struct __sk_buff *ctx)
{
	const __be16 *type = (void *)(long)ctx->data + 12;
	struct datagram d = {};

	if ((const void *)(type + 1) <= (void *)(long)ctx->data_end &&
	    common(ctx, bpf_ntohs(*type), 14))
		return TCX_NEXT;
	if (careful_ethernet(ctx, &d))
		learn(ctx, &d, NULL, 0);
	return TCX_NEXT;
}

__noinline int careful_ip(struct __sk_buff *ctx, struct datagram *d)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len};
	struct key k = {};

	return d && !parse_ip(&f, &k, HOOK_TCX) && found_datagram(&k, d);
}

SEC("tc")
int learn_ip(struct __sk_buff *ctx)
{
	const __u8 *first = (void *)(long)ctx->data;
	struct datagram d = {};

	if ((const void *)(first + 1) <= (void *)(long)ctx->data_end &&
	    common(ctx, *first >> 4 == 4 ? 0x0800 : 0x86dd, 0))
		return TCX_NEXT;
	if (careful_ip(ctx, &d))
		learn(ctx, &d, NULL, 0);
	return TCX_NEXT;
}

// These are here only so that the object holds whole programs.
SEC("xdp")
int entry_xdp(struct xdp_md *ctx)
{
	return echo_tell_xdp(ctx, bpf_get_prandom_u32(), bpf_get_prandom_u32(),
			     bpf_get_prandom_u32());
}

SEC("tc")
int entry_tcx(struct __sk_buff *ctx)
{
	return echo_tell_tcx(ctx, bpf_get_prandom_u32(), bpf_get_prandom_u32(),
			     bpf_get_prandom_u32());
}

SEC("tc")
int entry_flow(struct __sk_buff *ctx)
{
	return echo_proven(bpf_get_prandom_u32()) + echo_seen(bpf_get_prandom_u32());
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const enum echo_made *unused_echo_made __attribute__((unused));
