// Package price says what things cost a packet: the one cost model of planner and rule trees.
//
// In go counts of what a packet does, out come times on a machine. The figures were measured on a
// core of an AMD EPYC guest (docs/explanation/measured-tables.md, "Estimates"). It must never read
// the machine: how fast that is, is an input.
//
// A packet costs least if it is like those before it: the CPU foresees every branch, and all that
// it reads is in the first level of cache. Of packets in no order some surprise the CPU at each
// branch that may go either way, and memory is as far away as it is large.
package price

// Machine is the speed of a processor, as package calibration reads it.
type Machine struct {
	Step float64 // ns of an operation among many that do not wait for each other
	Wait float64 // ns of a load from the first level of cache that waits for the one before
	Load float64 // ns of a load that waits for the one before, over 6 MB
}

// Default is the machine of the figures below.
var Default = Machine{Step: 0.125, Wait: 1.55, Load: 120}

// Time is a duration by its parts.
type Time struct {
	Core float64 // ns on Default of operations
	Wait float64 // ns on Default of waiting for what was read, or for a branch
	Far  float64 // loads from beyond the second level of cache
}

// Core returns a time of operations, which a neighbour on the core makes longer.
func Core(ns float64) Time { return Time{Core: ns} }

// Wait returns a time of waiting, which he does not.
func Wait(ns float64) Time { return Time{Wait: ns} }

// Overlap is the part of its steps and levels that a packet takes if it is like those before it:
// with every branch foreseen the core is at several packets at once. Chains of multiplications and
// what waits for the memory that it has just written do not become shorter.
const Overlap = 0.4

// Times of a packet, on Default: of waiting, but for Compare and Count. Most are a chain, in which
// each operation waits for the one before. Those of memories stand in the rows of package state.
const (
	Decode4   = 1.5  // the fast path of IPv4, to the rules
	Decode6   = 2.5  // of IPv6
	Decode0   = 1.0  // of others
	Careful   = 21.0 // the careful decoder, besides
	Malformed = 18.5 // of a frame that it refuses, in all
	Decide    = 2.0  // the verdict: finding and adding to the counter
	Mixed     = 9.0  // packets of several classes in no order

	Compare  = 0.1  // a compare that the CPU foresees
	Surprise = 4.5  // a branch that it does not
	Count    = 0.5  // adding to a counter
	Flow     = 15.0 // looking a connection up
	Hash     = 10.0 // hashing its flow
	Stream   = 40.0 // finding how far its stream is known, and noting it
	Echo     = 15.0 // asking whether its flow is proven
	Route4   = 81.0 // asking the kernel for the way back to its source
	Route6   = 115.0
	UID      = 160.0 // asking the kernel whose socket sends it: its user,
	GID      = 260.0 // its group,
	Cgroup   = 140.0 // its service and container
	Bytes    = 36.0  // comparing bytes of the packet, which a helper fetches
	Search   = 23.0  // searching a payload: the functions and their helper
	Byte     = 1.4   // and each byte of it
	Message  = 30.0  // reading a DNS message, with the digests of its name
	Name     = 20.0  // looking a name up
	Look     = 65.0  // finding no packet within what may be a tunnel, which is decoded twice
	Within   = 43.0  // and if there is one, besides: it is decoded and matched
	Foreign  = 10.0  // an effect without a row
	Call     = 3.0   // a function of rules, its arguments and fields
	Bits     = 1.5   // a bitmap
	Level    = 2.5   // a level of prefixes
	Dynamic  = 30.0  // a dynamic set
	Endpoint = 28.0  // of endpoints
	Op       = 2.0   // a record of bytecode
	Strange  = 2.0   // and if packets are in no order, besides: the branch to the next surprises
	Enter    = 12.0  // the interpreter

	Step  = 2.0  // from a node of a rule tree to a child
	Leaf  = 1.0  // a leaf that is asked
	Entry = 1.8  // an entry that is compared
	Walk  = 20.0 // the function that walks what follows a leaf
	Round = 10.0 // each walk there beyond the first
)

// Searched counts the bytes of payload that a searched packet is taken to have.
const Searched = 100

// What a packet has of the first two levels of cache: others have the rest.
const (
	first  = 32 << 10
	second = 600 << 10
)

const (
	// near is the time of a load from the second level above that of one from the first, in ns; the
	// latter is part of what asks for it.
	near = 3.0
	// waits is the part of Machine.Load that a packet waits for a load from beyond: Load is of
	// loads that wait for each other, and those of two packets do not; and what packets ask for
	// again and again stays nearer than a chain that was visited once.
	waits = 0.15
)

// Memory returns what a load from so many bytes takes more than one from the first level, if all of
// them are asked for alike.
func Memory(bytes float64) Time {
	if bytes <= first {
		return Time{}
	}
	far := max(0, 1-second/bytes)
	return Time{0, (1 - first/bytes - far) * near, far}
}

// Plus returns both times.
func (t Time) Plus(u Time) Time { return Time{t.Core + u.Core, t.Wait + u.Wait, t.Far + u.Far} }

// Times returns n of the time.
func (t Time) Times(n float64) Time { return Time{t.Core * n, t.Wait * n, t.Far * n} }

// On returns the time in ns on a machine.
func (t Time) On(m Machine) float64 {
	return t.Core*m.Step/Default.Step + t.Wait*m.Wait/Default.Wait + t.Far*waits*m.Load
}
