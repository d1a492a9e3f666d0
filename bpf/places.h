// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// How connections find their places, and keep them.
#ifndef LEVEE_PLACES_H
#define LEVEE_PLACES_H

#include "flow.h"

// rank orders what may lose its place to a new connection; 0 goes first, KEEPS never. Each state
// has four bits of RANKS: what is looked up leaves verifiers fewer ways than a switch.
#define KEEPS 7
#define RANKED(state, rank) ((__u64)(rank) << 4 * (state))
#define RANKS                                                                                      \
	(RANKED(FLOW_CLOSING, 1) | RANKED(FLOW_RESET, 1) | RANKED(FLOW_ANSWERED, 2) |              \
	 RANKED(FLOW_OLDER, 2) | RANKED(FLOW_STRANGER, 2) | RANKED(FLOW_OPENING, 3) |             \
	 RANKED(FLOW_ONE_WAY, 3) | RANKED(FLOW_ECHO, 3) | RANKED(FLOW_GROUP, 3) |                  \
	 RANKED(FLOW_SERVED, 4) | RANKED(FLOW_TWO_WAY, 5) | RANKED(FLOW_OPEN, KEEPS))

// ranks are those in a bucket with so many ports. One alone ranks with what this side began: an
// answer opens nothing while it is known. Several are of packets to drawn ports.
static __always_inline __u64 ranks(__u64 ports)
{
	return RANKS + RANKED(FLOW_SERVED, (ports - 2) >> 63);
}

static __always_inline int rank(const struct flow_head *h, const struct flow *f, __u32 now,
				__u64 of)
{
	__u64 word = f->word;
	__u32 state = word & FLOW_STATE;
	__u32 left = f->expires - now;

	if (left - 1 >= h->lease[state])
		return 0;
	if (word & FLOW_RST_IN)
		state = FLOW_RESET;
	else if (state == FLOW_OPEN && h->lease[state] - left >= h->idle)
		return KEEPS - 1;
	return of >> 4 * state & 0xf;
}

// young is the greater the later a lease began, whatever its length. States of a rank have leases
// of their own: one of a flood whose lease is longer would outlast all who come after it.
static __always_inline __u32 young(const struct flow_head *h, const struct flow *f, __u32 now)
{
	return f->expires - now - h->lease[f->word & FLOW_STATE] - 1;
}

#define PLACE_BITS 3 // of the number of a place
_Static_assert(1 << PLACE_BITS == FLOW_BUCKET, "a place of a bucket has a number");

#define NOWHERE 0xffff

// find_place returns the place of a connection in its bucket, plus FLOW_BUCKET if the connection is
// known. For a new one it returns the place to take, or NOWHERE. The result is hidden from the
// verifier, which would otherwise walk all that follows once for each value.
static __always_inline __u32 find_place(struct flows *m, __u64 hash, __u32 now)
{
	__u64 tag = hash << FLOW_LOW >> FLOW_LOW; // below the bits that name the bucket
	struct flow *bucket = flow_bucket(m, hash);
	__u64 least = (__u64)KEEPS << 32, ports = 0;
	WORDS __u16 slots[4];

	for (int i = 0; i < FLOW_BUCKET; i++) {
		__u64 word = bucket[i].word;

		if (word >> FLOW_LOW == tag && word & FLOW_STATE &&
		    bucket[i].expires - now - 1 < m->head.lease[word & FLOW_STATE])
			return forget(&slots[1], FLOW_BUCKET + i);
	}
	for (int i = 0; i < FLOW_BUCKET; i++)
		ports += (((bucket[i].word & FLOW_STATE) ^ FLOW_SERVED) - 1) >> 63;
	ports = ranks(ports);
	least = least << PLACE_BITS | (FLOW_BUCKET - 1);
	for (int i = 0; i < FLOW_BUCKET; i++) {
		__u64 r = rank(&m->head, &bucket[i], now, ports);
		__u64 worth = r << 32 | (r ? young(&m->head, &bucket[i], now) : 0);

		least = least_of(worth << PLACE_BITS | i, least);
	}
	__u32 at = least >> (32 + PLACE_BITS) < KEEPS ? least & (FLOW_BUCKET - 1) : NOWHERE;

	return forget(&slots[1], at);
}

// put writes a place. A lease is renewed once a second at most.
static __always_inline void put(struct flows *m, struct flow *f, __u64 tag, __u32 state,
				__u32 proof, __u32 now)
{
	__u32 lease = m->head.lease[state & FLOW_STATE] - m->head.second;
	__u64 word = tag << FLOW_LOW | state;

	if (f->word == word && f->proof == proof && lease - (f->expires - now) < m->head.second)
		return;
	f->proof = proof;
	f->expires = now + lease;
	f->word = word;
}

// show makes the place of a tag visible. A bit that another CPU has lost meanwhile is set again by
// the next packet.
static __always_inline void show(struct flows *m, __u64 hash)
{
	const struct flow *bucket = flow_bucket(m, hash);
	__u8 *present = flow_present(m, hash), bit = 1 << (hash & 7), all = bit;

	if (*present & bit)
		return;
	for (int i = 0; i < FLOW_BUCKET; i++) {
		__u64 word = bucket[i].word;

		if (word & FLOW_STATE)
			all |= 1 << (word >> FLOW_LOW & 7);
	}
	*present = all;
}

// open_up sets the bucket's bit for a connection that is opening, or clears it when another
// connection has taken that place.
static __always_inline void open_up(struct flows *m, __u64 hash, int opening)
{
	const struct flow *bucket = flow_bucket(m, hash);
	__u64 number = flow_number(hash), bit = 1ULL << number % 64;
	__u64 *word = (void *)m + flow_opening() + number / 64 * sizeof(*word);

	if (!(*word & bit)) {
		if (opening)
			__sync_fetch_and_or(word, bit);
		return;
	}
	for (int i = 0; i < FLOW_BUCKET; i++)
		opening |= (bucket[i].word & FLOW_STATE) == FLOW_OPENING;
	if (!opening)
		__sync_fetch_and_and(word, ~bit);
}

// crowd notes that what was in a place, or found none, is not known any more. What answers somebody
// who began would open a connection then. It is noted once a second. A later time stays: package
// flow notes the end of a trial.
static __always_inline void crowd(struct flows *m, __u64 word)
{
	__u64 until;

	if ((word & FLOW_STATE) != FLOW_STRANGER)
		return;
	until = (m->head.clock ? m->head.clock : bpf_jiffies64()) + m->head.lease[FLOW_STRANGER];
	if ((__s64)(until - m->head.crowded) >= (__s64)m->head.second)
		m->head.crowded = until;
}

// place puts a connection where find_place has said.
static __always_inline void place(struct flows *m, __u64 hash, __u32 at, __u32 is, __u32 proof,
				  __u32 now)
{
	__u64 tag = hash << FLOW_LOW >> FLOW_LOW;
	int opening = (is & FLOW_STATE) == FLOW_OPENING;

	if (at == NOWHERE) {
		__sync_fetch_and_add(&m->head.refused, 1);
		crowd(m, is);
		return;
	}
	struct flow *f = &flow_bucket(m, hash)[at & (FLOW_BUCKET - 1)];

	if (at < FLOW_BUCKET && rank(&m->head, f, now, RANKS)) {
		__sync_fetch_and_add(&m->head.taken, 1);
		crowd(m, f->word);
	}
	if (at < FLOW_BUCKET && flow_above()) {
		__u8 *above = (void *)m + flow_above() + flow_number(hash) * FLOW_BUCKET;

		above[at & (FLOW_BUCKET - 1)] = hash >> (64 - FLOW_LOW);
	}
	put(m, f, tag, is, proof, now);
	show(m, hash);
	if (at < FLOW_BUCKET || opening)
		open_up(m, hash, opening);
}

#endif
