// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The head of a DNS message over UDP, for rules that ask for it: what the header and the first
// question say, and the digests of the name's suffixes. Package names takes the functions out of
// this object. The question's name stands there as a whole (RFC 1035 section 4.1.2): a pointer in
// it is malformed, so that every byte is read once, and none is followed.
//
// The digest of a suffix is a pair of sums over the suffix in pieces of 8 bytes, counted from its
// end (NH, RFC 4418 section 5.2.2, with Toeplitz keys). The name is read from its last label on, so
// the digest of each suffix is on the way to the next one.
#include "parse.h"

#define DNS_PORT 53
#define DNS_HEADER 12
#define DNS_RECORD 11 // OPT without options: root, type, class, TTL, length
#define DNS_OPT 41
#define MAX_NAME 255
#define NO_NAME 255 // in place of a number of labels
#define MAX_LABEL 63
#define NAME_LABELS 128 // 127, rounded up
#define NAME_PIECES 128 // labels of one byte with their lengths have the most
#define TEXT 512	// a power of two
// No byte beyond these is read from a datagram.
#define MOST_TEXT (8 + DNS_HEADER + MAX_NAME + 4 + DNS_RECORD)

// What is known of a message: the upper half of what the function returns. The lower has the
// question's type, and above it the size that EDNS tells.
enum dns_facts {
	DNS_SEEN = 1 << 0,
	DNS_HEAD = 1 << 1, // there is a header
	DNS_RESPONSE = 1 << 2,
	DNS_MALFORMED = 1 << 3,
	DNS_QUESTION = 1 << 4, // there is a whole question
	DNS_EDNS = 1 << 5,
	DNS_OPCODE = 8,	 // 4 bits from here on
	DNS_LABELS = 16, // 8 bits from here on
};

struct name_digest {
	__u64 a, b;
};

typedef __u64 __attribute__((may_alias)) word; // wherever it begins

// What one CPU works on.
struct name_work {
	struct name_digest suffixes[NAME_LABELS]; // of one label, of two, ...
	__u16 starts[NAME_LABELS];		  // where labels begin in the frame, the first first
	__u32 facts, end;			  // of which the verifier knows nothing
	__u16 zero;				  // of which the verifier knows nothing, either
	__u16 slots[3];				  // of numbers that it shall forget
	__u8 text[TEXT + 16]; // a copy of the packet, beginning with the UDP header
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct name_work);
} names SEC(".maps");

// The keys of the sums. The program's are those of its policy.
const volatile __u32 name_keys[2 * NAME_PIECES + 2] SEC(".rodata.names") = {};

// blur has the verifier forget a number of 16 bits, as forget does, without the time that a store
// and a load of it take. The verifier does not know that zero is 0.
static __always_inline __u32 blur(__u32 v, __u64 zero)
{
	__u64 n = v;

	asm volatile("%0 ^= %1\n%0 &= 0xffff" : "+r"(n) : "r"(zero));
	return n;
}

// copied says that the message is read from a copy, and not from the packet's first buffer. A read
// that may be either has two ways, and the verifier of Linux 6.1 walks both at each byte of a name.
static __always_inline int copied(int hook) { return hook != HOOK_XDP; }

// bytes_at returns a pointer to n bytes of the message, 0 if the packet ends before them. The copy
// in w begins with the UDP header and has all bytes that callers have found to lie before the
// message's end.
static __always_inline const void *bytes_at(const struct frame *f, const struct name_work *w,
	__u64 off, __u32 n, int hook)
{
	if (copied(hook)) {
		// clang knows it to be less, the verifier of Linux 6.1 does not.
		asm volatile("%0 &= %1" : "+r"(off) : "i"(TEXT - 1));
		return w->text + off;
	}
	const void *at = f->data + (off & 0x7fff); // see pull

	return at + n > f->data_end ? 0 : at;
}

// lower makes the letters in 8 bytes lower case. The sums leave out the highest bit of each byte,
// so that none carries into the next byte.
static __always_inline __u64 lower(__u64 v)
{
	const __u64 ones = 0x0101010101010101ULL, high = 0x80 * ones;
	__u64 low = v & ~high;
	__u64 from_a = low + (0x80 - 'A') * ones, above_z = low + (0x7f - 'Z') * ones;

	return v | ((from_a ^ above_z) & ~v & high) >> 2;
}

// is_negative is 1 for a number below zero, 0 for others. clang would make a branch of it.
static __always_inline __u64 is_negative(__u64 n)
{
	asm volatile("%0 >>= 63" : "+r"(n));
	return n;
}

// digest sums up the suffixes of a name, deepest of them, whose last label ends at end. A piece has
// no branches but those that end it all: the verifier would walk what follows once for each way.
static __always_inline void digest(const struct frame *f, struct name_work *w, __u32 labels,
				   __u32 end, __u32 deepest, int hook)
{
	__u64 a = 0, b = 0, zero = *(volatile __u16 *)&w->zero;
	__u32 depth = 0;

	for (__u32 i = 0; i < NAME_PIECES; i++) {
		__u32 start, bytes;
		const word *at;

		depth = blur(depth, zero);
		if (depth >= labels || depth >= deepest)
			return;
		start = w->starts[(labels - depth - 1) & (NAME_LABELS - 1)];
		end = blur(end, zero);
		bytes = end - start;
		at = bytes_at(f, w, end - 8, 8, hook);
		if (bytes > MAX_LABEL + 1 || !bytes || !at)
			return; // never
		__u64 more = is_negative(8 - (__u64)bytes);
		// A label of less than 8 bytes has others in front of it.
		__u64 v = lower(*at >> ((64 - 8 * bytes) * (1 - more) & 63));
		__u32 lo = v, hi = v >> 32;

		a += (__u64)(__u32)(lo + name_keys[2 * i]) * (__u32)(hi + name_keys[2 * i + 1]);
		b += (__u64)(__u32)(lo + name_keys[2 * i + 2]) * (__u32)(hi + name_keys[2 * i + 3]);
		w->suffixes[depth & (NAME_LABELS - 1)].a = a; // that of its last piece stays
		w->suffixes[depth & (NAME_LABELS - 1)].b = b;
		end -= bytes + more * (8 - (__u64)bytes);
		depth += 1 - more;
	}
}

// labels_of finds the labels of the name at off, and moves off behind the name. It returns NO_NAME
// if there is no valid name.
static __always_inline __u32 labels_of(const struct frame *f, struct name_work *w, __u32 *off,
				     __u32 end, int hook)
{
	__u32 at = *off, first = at;
	__u64 zero = *(volatile __u16 *)&w->zero;

	for (__u32 i = 0; i < NAME_LABELS; i++) {
		const __u8 *label;

		at = blur(at, zero);
		if (at >= end || at - first >= MAX_NAME || !(label = bytes_at(f, w, at, 1, hook)))
			return NO_NAME;
		__u8 bytes = *label;

		if (!bytes) {
			*off = at + 1;
			return i;
		}
		if (bytes > MAX_LABEL)
			return NO_NAME;
		w->starts[i] = at;
		at += 1 + bytes;
	}
	return NO_NAME;
}

static __always_inline __u16 be16(const __u8 *b) { return b[0] << 8 | b[1]; }

// additional judges what is behind the question of a query: so many records, of which the first may
// be OPT.
static __always_inline __u64 additional(const struct frame *f, struct name_work *w, __u32 off,
					__u32 end, __u32 records, int hook)
{
	const __u8 *opt;

	if (!records)
		return off < end ? (__u64)DNS_MALFORMED << 32 : 0;
	if (off >= end || !(opt = bytes_at(f, w, off, 1, hook)))
		return (__u64)DNS_MALFORMED << 32;
	if (opt[0])
		return 0;
	if (end - off < DNS_RECORD || !(opt = bytes_at(f, w, off, DNS_RECORD, hook)))
		return (__u64)DNS_MALFORMED << 32;
	if (be16(opt + 1) != DNS_OPT)
		return 0;
	__u32 behind = off + DNS_RECORD + be16(opt + 9);
	__u64 facts = 0;

	if (behind > end || (records == 1 && behind < end))
		facts |= DNS_MALFORMED;
	if (behind <= end)
		facts |= DNS_EDNS;
	return facts << 32 | (facts & DNS_EDNS ? (__u32)be16(opt + 3) << 16 : 0);
}

// copy copies what is looked at of a datagram of so many bytes.
static __always_inline long copy(const struct frame *f, struct name_work *w, __u32 off,
				 __u32 bytes, int hook)
{
	bytes = forget(&w->slots[0], bytes > MOST_TEXT ? MOST_TEXT : bytes);
	return hook == HOOK_TCX ? bpf_skb_load_bytes(f->ctx, off, w->text, known_size(bytes)) :
				  bpf_xdp_load_bytes(f->ctx, off, w->text, known_size(bytes));
}

// look reads the DNS message of a datagram. Its UDP header is at off, and the packet has left bytes
// from there. A packet that stands for several datagrams may hide a query behind the first one.
static __always_inline __u64 look(const struct frame *f, __u32 off, __u32 left, __u32 several,
				  __u32 deepest, int hook)
{
	__u64 facts = DNS_SEEN;
	__u32 zero = 0, end, cut;
	struct name_work *w = bpf_map_lookup_elem(&names, &zero);

	if (!w)
		return (facts | DNS_MALFORMED) << 32; // never
	if (left < 8 + DNS_HEADER || (copied(hook) && copy(f, w, off, left, hook)))
		return (facts | DNS_MALFORMED) << 32;
	if (copied(hook))
		off = 0;
	const __u8 *h = bytes_at(f, w, off, 8 + DNS_HEADER, hook);

	if (!h)
		return (facts | DNS_MALFORMED) << 32; // never
	end = be16(h + 4);
	cut = end > left;
	if (cut)
		end = left;
	if (end < 8 + DNS_HEADER)
		return (facts | DNS_MALFORMED) << 32;
	if (several) // datagrams that a server has sent, and routers merged, are no way to ask one
		several = be16(h) != DNS_PORT || be16(h + 2) == DNS_PORT || !(h[10] & 0x80);
	end += off;
	off += 8;
	h += 8;
	__u32 response = h[2] & 0x80, opcode = h[2] >> 3 & 15;
	__u32 questions = be16(h + 4), records = be16(h + 10), answers = be16(h + 6) | be16(h + 8);

	facts |= DNS_HEAD | opcode << DNS_OPCODE;
	if (response)
		facts |= DNS_RESPONSE;
	if (questions > 1 || (cut && !response) || several)
		facts |= DNS_MALFORMED;
	// The verifier would walk what follows once for each way to here.
	w->facts = facts;
	w->slots[2] = !response && !opcode && !answers && questions <= 1;
	off = forget(&w->slots[0], off + DNS_HEADER);
	w->end = end;
	end = *(volatile __u32 *)&w->end;
	__u64 word = 0;

	if (questions) {
		// And once for each number of labels.
		__u32 labels = forget(&w->slots[1], labels_of(f, w, &off, end, hook));

		off = forget(&w->slots[0], off);

		if (labels == NO_NAME || off + 4 > end || !(h = bytes_at(f, w, off, 2, hook)))
			return ((__u64)w->facts | DNS_MALFORMED) << 32;
		word = be16(h);
		digest(f, w, labels, off - 1, deepest, hook);
		w->facts |= DNS_QUESTION | labels << DNS_LABELS;
		off += 4;
	}
	if (*(volatile __u16 *)&w->slots[2])
		word |= additional(f, w, off, end, records, hook);
	return (__u64)*(volatile __u32 *)&w->facts << 32 | word;
}

// look_at looks into the copy only where the message does not lie in the first buffer.
static __always_inline __u64 look_at(const struct frame *f, __u32 off, __u32 left, __u32 deepest,
				     int hook)
{
	__u32 several = merged(f, hook);

	if (!copied(hook) || off + left <= f->data_end - f->data)
		return look(f, off, left, several, deepest, HOOK_XDP);
	return look(f, off, left, several, deepest, hook);
}

static __noinline __u64 dns_xdp(struct xdp_md *ctx, __u32 off, __u32 left, __u32 deepest)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};

	return look_at(&f, off, left, deepest, HOOK_XDP);
}

static __noinline __u64 dns_xdp_frags(struct xdp_md *ctx, __u32 off, __u32 left, __u32 deepest)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};

	return look_at(&f, off, left, deepest, HOOK_XDP_FRAGS);
}

static __noinline __u64 dns_tcx(struct __sk_buff *ctx, __u32 off, __u32 left, __u32 deepest)
{
	struct frame f = {ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0};

	return look_at(&f, off, left, deepest, HOOK_TCX);
}

// These are here only so that the object holds whole programs.
#define ENTRY(section, name, context)                                                              \
	SEC(section)                                                                               \
	int entry_##name(struct context *ctx)                                                      \
	{                                                                                          \
		__u32 at = bpf_get_prandom_u32() & 0xffff;                                         \
                                                                                                   \
		return dns_##name(ctx, at, bpf_get_prandom_u32() & 0xffff, at & 127);              \
	}

ENTRY("xdp", xdp, xdp_md)
ENTRY("xdp.frags", xdp_frags, xdp_md)
ENTRY("tc", tcx, __sk_buff)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Exported to Go by bpf2go, which only sees types that are used.
const enum dns_facts *unused_dns_facts __attribute__((unused));
