// Package hashtable keeps entries with leases in flat memory that eBPF programs read while a writer
// changes it: a hash table of small buckets. It is the core of the dynamic sets of packages prefix,
// endpoint and names, which say what an entry is and which keys a look-up tries.
//
// In go keys and ends of leases, out come changes of the memory (the value of an array map with one
// entry), and the instructions that look one key up in it. A [Kind] says how a set of its kind is
// laid out, an [Index] what it counts beside the table. The Go code that looks a key up does what
// the emitted code does, step by step.
//
// # Places
//
// An entry lies in one of two buckets that its hash names. A bucket counts the entries that lie in
// their second one instead of it, its spilled entries, so that a look-up reads the second only if
// there are any. When both are full, entries move from their first to their second.
//
// Each slot has a meta of 64 bits:
//
//	0-7    the code of the prefix length of the key, from 1 on; 0: the slot is free
//	8-15   a piece of the hash; 0 in narrow tables
//	16-23  a number that grows whenever the slot is given to another entry
//	24-63  jiffies when the lease ends, 0 for never
//
// # Readers beside a writer
//
// One writer at a time; who shares the memory between processes holds a lock around each change.
// Programs and [Table.Holds] need none, and see this:
//
//   - An entry that is there is never missed while it moves: it is counted as spilled, then written
//     in its second bucket, then taken out of the first. A reader looks into the slots of the first
//     bucket, then at its count of spilled entries, then into the second. Entries never move the
//     other way.
//   - A reader sees an entry as a whole or not at all. A slot is marked free before its key
//     changes, and its meta is written last; a reader takes a meta, compares the key, and looks at
//     the meta again: code, piece of hash and number must be the same. That needs loads to happen
//     in order, as they do on x86-64; where they need not (arm64), a reader may, in the nanoseconds
//     in which a slot changes hands, take the next entry's lease for this one's.
//   - A new lease takes the place of the old one in one store.
//   - An entry whose lease has ended is no entry, from that jiffy on, whether or not anybody has
//     removed it.
//   - [Index.Count] hears of an entry before it can be found, and of its end after it cannot be any
//     more.
//
// A writer that is killed in the middle leaves memory that programs read correctly, marked as
// dirty; the next writer mends it ([Kind.Open], [Set.Mend]) under the same rules, with programs
// reading.
//
// This package must never open, pin or load anything, and does not know what the keys mean.
package hashtable
