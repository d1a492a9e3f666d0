// Package endpoint keeps a dynamic set of endpoints in flat memory and emits the eBPF code that
// asks it: prefixes with a protocol and a block of ports each, and a lease.
//
// In go entries, out come changes of the memory (the value of an array map with one entry), the
// instructions that read it, and a Go reference that reads the same bytes. It is what
// [prefix.Dynamic] is for plain prefixes, with the same register contract and the same way to
// replace the whole contents: another such memory in an array of maps. The table and the rules for
// writers and readers are those of package hashtable.
//
// A look-up asks once for each shape in use, that is, for each length of prefix together with a
// size of port block; a set takes at most [MaxShapes] of them in each family, so that no packet
// costs more than that.
//
// This package must never open, pin or load anything, and knows no policies.
package endpoint
