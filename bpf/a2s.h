// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Queries of game servers by A2S (https://developer.valvesoftware.com/wiki/Server_queries).
#ifndef LEVEE_A2S_H
#define LEVEE_A2S_H

#include <linux/types.h>

#define A2S_HEAD 5 // bytes: of a whole packet all bits of four are set, and its type
#define A2S_TYPE(type) ((__u64)(type) << 32 | 0xffffffff) // that head as a load has it
#define A2S_INFO 0x54
#define A2S_PLAYER 0x55
#define A2S_RULES 0x56
#define A2S_CHALLENGE 0x41 // the answer with a number
#define A2S_NONE 0xffffffff // in the place of a number: the client asks for one
#define A2S_INFO_BYTES 25  // without a number: the head and "Source Engine Query"

// a2s_place is where a query has a number, behind its UDP header; 0 of what is no query.
static __always_inline __u32 a2s_place(__u64 head)
{
	if (head == A2S_TYPE(A2S_INFO))
		return A2S_INFO_BYTES;
	return head == A2S_TYPE(A2S_PLAYER) || head == A2S_TYPE(A2S_RULES) ? A2S_HEAD : 0;
}

#endif
