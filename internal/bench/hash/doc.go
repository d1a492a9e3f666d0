// Package hash measures what hash functions of a flow's key cost in eBPF and in Go, and how well
// they spread.
//
// In go Options, out comes a Report: for each function and length of key ns a hash above the same
// loop without one, as medians of interleaved rounds with 95 % intervals. The eBPF programs
// (bpf/hash.bpf.c) are levee's own, written from the specifications; the Go side is what well-kept
// libraries do, with the processor's instructions where they use them. Before anything is timed the
// two must agree on random keys: a function that does not has no figure but the reason.
//
// Two times are told apart: a stream of independent hashes, which the CPU overlaps, and a chain in
// which each key is chosen by the hash before, so that nothing overlaps. One hash for each packet,
// between other work that needs it, is nearer to the chain.
//
// The package sends no packets and leaves nothing in the kernel.
package hash
