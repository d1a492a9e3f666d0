// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef LEVEE_ANSWER_H
#define LEVEE_ANSWER_H

// The mark (skb->mark) of answers that levee makes itself: they leave by the interface on which the
// SYN or query arrived. Programs at egress learn nothing from marked packets.
#define ANSWER_MARK 0x6c657665

// is_own says whether a packet that leaves is one of those: nothing that the host sends has come in
// by an interface.
#define is_own(ctx) ((ctx)->mark == ANSWER_MARK && (ctx)->ingress_ifindex == (ctx)->ifindex)

// The mark of what a service sends and its policy drops: the program that notes connections runs
// all the same, and learns nothing from it.
#define DROPPED_MARK 0x6c657664

#endif
