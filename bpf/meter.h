// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// How many packets come to a rule that acts above a rate.
#ifndef LEVEE_METER_H
#define LEVEE_METER_H

#include "parse.h"

// What is known of the packets that come to a rule. Times are in jiffies.
struct meter {
	__u64 start; // of the second that is counted
	__u64 count; // packets in it
	__u64 until; // the rule acts
	__u64 last;  // answer, of a cookie
};

#define ACTS 2 // seconds for which a rule goes on when the rate has been exceeded

// above counts a packet, and says whether the rule acts.
static __always_inline int above(__u32 second, struct meter *m, __u64 rate, __u64 now)
{
	if ((__s64)(now - m->start) >= (__s64)second) { // another CPU may be a tick ahead
		m->start = now;
		m->count = 0;
	}
	if (__sync_fetch_and_add(&m->count, 1) >= rate && m->until != now + ACTS * second)
		m->until = now + ACTS * second;
	return now < m->until;
}

#endif
