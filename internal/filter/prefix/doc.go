// Package prefix keeps sets of IP prefixes in flat memory and emits the eBPF code that asks them
// whether an address is a member.
//
// There are two kinds of set. A [Static] is built once from a list of prefixes and never changes;
// its structure is chosen from the prefixes (see [Static.Why]). A [Dynamic] lives in a memory
// mapped array map and is changed in place, entry by entry, while programs on other CPUs read it
// without locks, or replaced as a whole by another such memory; each entry has a lease that the
// eBPF side itself checks. Its tables, one for each family, are those of package hashtable.
//
// In go prefixes, out come bytes (the value of an array map with one entry), instructions that
// read them, and a Go reference that reads the same bytes. Building is pure: the same prefixes
// give the same bytes and the same instructions on every machine.
//
// # Register contract
//
// The look-up of a static set is inline code, that of a dynamic set a function. Both expect and
// leave this:
//
//	in   R1  IPv4: the address, host order, in the low 32 bits (the upper are ignored);
//	         IPv6: the first 8 bytes of the address as a host-order number
//	     R2  IPv6: the last 8 bytes likewise
//	out  R0  1 if the address is a member, else 0
//
// R0 to R5 are overwritten, R6 to R9 kept. Every symbol begins with the label the caller gave.
// Nothing but array maps with one entry (Linux 5.2; 6.0 for more than 4 MB) and, for dynamic sets,
// an array of maps with one entry, bpf_jiffies64 (5.6) and global functions that take a pointer
// (5.12) is needed; every table index is bounded by a shift or a mask, so that the verifier needs
// no path for it.
//
// This package must never open, pin or load anything: maps are made by package dataplane.
package prefix
