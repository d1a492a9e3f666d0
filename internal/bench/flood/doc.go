// Package flood measures what becomes of a flood in a lab that is made for it: windows, rounds of
// them behind different defences, and the figures that these allow.
//
// In go Options, defences and traffic; out come a Window each time, and Figures of many: packets a
// second with a 95 % interval and the time that a packet costs. A window that breaks one of the
// rules below gives a reason instead of a number; a rung that loses a third of its rounds has none.
//
//   - All rungs take the same path (conditions.go): GRO on, NAPI in a thread that owns one core,
//     generator on another, one queue, no qdisc, the same live frames from the same seed.
//   - Packets balance (judge.go): offered = refused by the ring + received, and received = the
//     rung's own counter + what went on to the next layer + what found the application's queue
//     full, to 0.1 %.
//   - Saturation: the receiver always had something to do and the ring refused packets, or the
//     figure is a lower bound and is marked "at least".
//   - Warm-up is discarded; rounds go through the rungs forwards and backwards in turn, both
//     families while a rung's defence is in place.
//   - Beside each window stands where the cores are, and whether a neighbour of a guest shares them
//     (reference.go). Windows that differ from the others in that are tried again, and count only
//     where too few others are left.
//   - Open packet sockets, stolen time, another program on the receiving core, the wrong hook mode,
//     conntrack (full, or not where it should be) and martian drops make a window invalid.
//   - The application shares the receiving core and goes first there (package app).
//
// veth has no DMA and no descriptors: ratios carry over to other machines, absolute figures do not.
// The package must never send outside its lab, and leaves nothing behind, also when its context
// ends.
package flood
