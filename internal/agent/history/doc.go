// Package history keeps what was counted each second, for a year, in a bounded number of bytes on
// the disk.
//
// In go counters by interface and rule, and estimates by protocol and source; out come rates over
// any range. Time is an argument: the package reads no clock. What nobody counted is a gap, never a
// zero. It knows no kernel and no policy.
//
// There are tiers, of one second, ten seconds, a minute, ten minutes and two hours. Each is a ring
// of segments, files that are only appended to, and each second goes to all of them at once. A
// point of a coarse tier is written when its time is over. What of it was not written when a
// process was killed is made again from the points of the finest tier, whose seconds have numbers.
package history
