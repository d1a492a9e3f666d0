// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// How a transport stream is followed under the lock of its flow: the continuity of each PID, RTP's
// sequence numbers, the delay factor, and pauses. No function reads the packet.
#ifndef LEVEE_MPEGTS_STREAM_H
#define LEVEE_MPEGTS_STREAM_H

#include "mpegts.h"

// sequence follows RTP's sequence numbers and says whether the datagram is the next; others are
// late, or came before, and are not followed: what they lack was counted when it did not come.
static __always_inline int sequence(struct mpegts_flow *f, __u32 ssrc, __u16 seq, __u8 type)
{
	__u16 ahead = seq - f->expected, back = f->expected - seq;

	f->type = type;
	if (!f->rtp || f->ssrc != ssrc) {
		if (f->rtp)
			f->rtp_restarts++;
		f->rtp = 1;
		f->ssrc = ssrc;
		f->came = 0; // packets of before that arrive from here on are late
	} else if (ahead < 0x8000) {
		f->rtp_lost += ahead;
		f->came = ahead < 64 ? f->came << ahead : 0;
	} else if (back <= 64) {
		__u64 bit = 1ull << (back - 1 & 63);

		if (f->came & bit)
			f->repeated++;
		else
			f->rtp_late++;
		f->came |= bit;
		f->bad = seq;
		return 0;
	} else if (seq != f->bad) {
		f->bad = seq + 1;
		f->rtp_late++;
		return 0;
	} else {
		f->rtp_restarts++;
		f->came = 0;
		f->epoch++; // the datagram before was not followed
	}
	f->came = f->came << 1 | 1;
	f->expected = seq + 1;
	f->bad = f->expected; // which is not one of a restart
	return 1;
}

// place_of returns what is remembered of the PID that has a place, of which the number is not 0.
static __always_inline struct mpegts_pid *place_of(struct mpegts_flow *f, struct mpegts_pids *all,
						   __u32 at)
{
	if (at <= PIDS_NEAR)
		return &f->near[at - 1 & (PIDS_NEAR - 1)];
	return &all->pids[at & 255];
}

// follow follows one packet of a flow.
static __always_inline void follow(struct mpegts_flow *f, struct mpegts_pids *all,
				   const struct mpegts_packet *t)
{
	__u32 pid = t->pid & (PIDS - 1), cc = t->cc, expected;
	// PIDs that follow one another, as those of a programme mostly do, have no hash in common.
	__u8 *lately = &f->lately[(pid ^ pid / PIDS_LATELY) & (PIDS_LATELY - 1)];
	__u32 at = *lately;
	struct mpegts_faults *x;
	struct mpegts_pid *p;

	f->packets++;
	if (pid == PID_NULL) {
		f->nulls++;
		return;
	}
	p = place_of(f, all, at);
	if (!at || p->pid != pid) {
		at = all->at[pid];
		if (!at) {
			if (f->pids == PIDS_FOLLOWED) {
				f->unfollowed++;
				return;
			}
			at = ++f->pids;
			all->at[pid] = at;
		}
		*lately = at;
		p = place_of(f, all, at);
		p->pid = pid;
	}
	x = &all->faults[at & 255];
	p->packets++;
	// Most packets are none of these, and then the lines of their counters are not asked for. There
	// is one branch, since the verifier would follow three in all their combinations.
	if (t->is & (IS_SCRAMBLED | IS_ERROR | IS_DECLARED)) {
		p->scrambled += t->is / IS_SCRAMBLED & 1;
		f->scrambled += t->is / IS_SCRAMBLED & 1;
		x->errors += t->is / IS_ERROR & 1;
		f->errors += t->is / IS_ERROR & 1;
		x->declared += t->is / IS_DECLARED & 1;
		f->declared += t->is / IS_DECLARED & 1;
	}
	expected = p->cc + (t->is / IS_PAYLOAD & 1) & 15;
	if (!p->known || p->epoch != f->epoch) {
		if (t->is & IS_ERROR)
			return;
		p->known = 1;
		p->epoch = f->epoch;
	} else if (t->is & IS_DECLARED) {
		// its counter may be any
	} else if (t->is & IS_PAYLOAD && cc == p->cc && t->check == p->check) {
		x->duplicates++;
		f->duplicates++;
		if (p->repeated) { // two are allowed, and not three
			x->discontinuities++;
			f->discontinuities++;
		}
		p->repeated = 1;
		return;
	} else if (cc != expected) {
		__u32 missing = cc - expected & 15;

		if (t->is & IS_ERROR) // which may be in the counter or the PID
			return;
		x->discontinuities++;
		f->discontinuities++;
		x->missing += missing;
		f->missing += missing;
	}
	p->repeated = 0;
	p->cc = cc;
	p->check = t->check;
}

// faults are those by which bytes between two PCRs are missing.
static __always_inline __u64 faults(const struct mpegts_flow *f)
{
	return f->discontinuities + f->rtp_lost + f->unsynced + f->fragments;
}

// next_window ends the window of the delay factor, and finds the media rate of the next: by PCRs
// where these are whole, else by what has arrived.
static __always_inline void next_window(struct mpegts_flow *f, __u64 t)
{
	const __u64 wraps = (1ull << 33) * 300;
	__u64 lasted = t - f->begun;

	if (lasted < 2 * window) {
		if (f->byte_time) {
			f->delay = f->most - f->least;
			if (f->delay > f->delay_most)
				f->delay_most = f->delay;
			f->windows++;
		}
		if (given_byte_time) {
			f->byte_time = given_byte_time;
			f->rate_by = RATE_GIVEN;
		} else if (f->pcrs == 2 && f->faults == faults(f)) {
			__u64 ticks = f->pcr_last - f->pcr_first;
			__u64 bytes = f->last_at - f->first_at;

			if (f->pcr_last < f->pcr_first)
				ticks += wraps;
			// A PCR far from the time that has passed is of another clock, or of one that was set
			// anew.
			if (bytes && ticks * 1000 / 27 < 2 * lasted &&
			    ticks * 1000 / 27 > lasted / 2) {
				f->byte_time = (ticks * 1000 / 27 << 16) / bytes;
				f->rate_by = RATE_PCR;
			}
		} else if (f->window_bytes && f->rate_by != RATE_PCR) {
			f->byte_time = (lasted << 16) / f->window_bytes;
			f->rate_by = RATE_ARRIVAL;
		}
	}
	if (f->pcrs == 2) {
		f->pcr_first = f->pcr_last;
		f->first_at = f->last_at;
		f->pcrs = 1;
	} else { // its PID has gone
		f->pcr_pid = NO_PID;
		f->pcrs = 0;
		if (f->rate_by == RATE_PCR)
			f->rate_by = RATE_UNKNOWN;
	}
	f->faults = faults(f);
	f->begun = t;
	f->window_bytes = 0;
	f->least = f->most = 0;
}

// arrive puts the bytes of a datagram into the virtual buffer of RFC 4445: its level is the bytes
// that came, less those that the media rate takes since the window began.
static __always_inline void arrive(struct mpegts_flow *f, __u64 t, __u32 bytes)
{
	__s64 level;

	if (!f->begun) {
		f->begun = t;
		f->pcr_pid = NO_PID;
		f->byte_time = given_byte_time;
		f->rate_by = given_byte_time ? RATE_GIVEN : RATE_UNKNOWN;
	} else if (t - f->begun >= window) {
		next_window(f, t);
	}
	level = (__s64)(f->window_bytes * f->byte_time >> 16) - (__s64)(t - f->begun);
	if (level < f->least)
		f->least = level;
	f->window_bytes += bytes;
	level = (__s64)(f->window_bytes * f->byte_time >> 16) - (__s64)(t - f->begun);
	if (level > f->most)
		f->most = level;
}

// clock notes a PCR that stands so many bytes from the stream's beginning.
static __always_inline void clock(struct mpegts_flow *f, const struct mpegts_packet *t, __u64 at)
{
	if (f->pcr_pid == NO_PID)
		f->pcr_pid = t->pid;
	if (f->pcr_pid != t->pid)
		return;
	if (t->is & IS_DECLARED || !f->pcrs) {
		f->pcr_first = t->pcr;
		f->first_at = at;
		f->pcrs = 1;
	} else {
		f->pcrs = 2;
	}
	f->pcr_last = t->pcr;
	f->last_at = at;
}

// pause notes how long nothing has come.
static __always_inline void pause(struct mpegts_flow *f, __u64 t)
{
	__u64 paused = t - f->last;

	if (!f->first) {
		f->first = t;
		f->last = t;
		return;
	}
	// A CPU that was a little behind another has nothing new to say.
	if ((__s64)paused <= 0)
		return;
	f->last = t;
	if (paused > f->longest)
		f->longest = paused;
	if (paused >= silence) {
		f->silences++;
		f->silent += paused;
	}
}

#endif
