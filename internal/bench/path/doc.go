// Package path measures the round trip to hosts against the size of packets: what a path takes for
// any packet, and what for each byte.
//
// In go hosts and sizes, out comes a Report: for each host and size the least and the median round
// trip of echo requests (RFC 792, RFC 4443), and a line through the least ones, as pathchar fitted
// it (Van Jacobson, MSRI 1997): queues only ever add to a round trip, so that the least of many is
// that of an empty path.
//
// Requests go at times of a Poisson process (RFC 2330, section 11.1.1), all hosts and sizes in one
// random order, and none waits for an answer before it. So nothing that is periodic in a host or on
// the way, such as a timer or the moderation of interrupts, meets one size more than another, and a
// slow answer makes no later request late.
//
// The package changes nothing on the machine. It sends as `ping` does, at a rate that is bounded.
package path
