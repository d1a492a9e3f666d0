// Package limit holds the budgets of limits in flat memory: which slot is whose, what it says, and
// the instructions that find and charge one.
//
// In go the limits of a policy, out come the layout of their memory and functions of a program.
// The package opens, pins and loads nothing.
//
// The memory is a head and lines of 64 bytes. A key's hash names its line; a line has eight slots,
// and a slot is one word: the upper 46 bits are the time at which the budget of its key is full
// again, the lower 18 a tag of the hash. The tag is of bits that name no line, however many there
// are: so budgets can move into another number of lines (carry.go). A slot whose time has passed is
// as good as empty, so taking it forgets nothing. Where a line has neither a slot of the key nor
// one whose time has passed, the key takes the slot with the least debt, and the debt with it: a
// full line lets through less, never more. A word of zero is a slot that nobody has used. Times
// wrap around: one that is further ahead than the greatest debt has passed. So a slot that nobody
// has touched since is mistaken for one in debt only where its time, of 46 bits, has come around to
// within that debt, of 38 bits at most.
//
// The hash is multilinear in pieces of 32 bits with random factors of 64 bits (Lemire and Kaser,
// "Strongly universal string hashing is fast", 2014), mixed once more. Factors are drawn when the
// memory is made and lie in its head: who does not know them cannot choose keys of one line.
package limit

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"levee/internal/lang/policy"
)

// Offsets in the memory of a limit.
const (
	atStarts  = 0  // of the sums, one a key
	atLast    = 24 // the factor of the last mix, odd
	atFactors = 32 // of the pieces
	factors   = 11 // a flow of IPv6 has ten pieces; the last is for its family

	// Counters, on a line of their own.
	atEvicted   = 128 // slots in debt that another key has taken
	atInherited = 136 // debts taken over with them, in units of time
	atContended = 144 // packets dropped as other CPUs changed their slot again and again

	Head = 192
)

const (
	tagBits  = 18
	timeBits = 64 - tagBits
	lineBits = 22 // of a hash, the upper ones: the most that name a line
)

// Size returns the memory of a limit in bytes.
func Size(l *policy.Limit) int { return Head + l.Lines()*policy.LineBytes }

// Seed draws the random factors of a memory's hash. The memory is all zero else.
func Seed(memory []byte) {
	for at := 0; at < atFactors+8*factors; at += 8 {
		n := rand.Uint64()
		if at == atLast {
			n |= 1
		}
		binary.NativeEndian.PutUint64(memory[at:], n)
	}
}

// Shape holds the parameters of a limit by which its memory is read.
type Shape struct {
	Depth uint64 `json:"depth"` // policy.Limit.Depth
	Shift uint   `json:"shift"` // log2 of the unit of time in nanoseconds
	Keyed bool   `json:"keyed"` // it has more than one budget
	Bytes bool   `json:"bytes"` // they are of bytes, not of packets
	// what Amount packets or bytes cost the budgets of each key, in units of time
	Costs  []uint64 `json:"costs"`
	Amount uint64   `json:"amount"`
}

// ShapeOf returns the shape of a limit.
func ShapeOf(l *policy.Limit) Shape {
	s := Shape{Depth: l.Depth(), Shift: l.Shift, Keyed: !l.One(), Bytes: l.Rate.Bits,
		Amount: 1}
	if l.Rates != nil {
		// What was spent of rates by prefix stays spent for as long as it would have been.
		second := uint64(time.Second) >> l.Shift
		for range max(1, len(l.Keys)) {
			s.Costs = append(s.Costs, second)
		}
		return s
	}
	if s.Bytes {
		s.Amount = l.Burst // a byte may cost less than a unit
	}
	for i := range max(1, len(l.Keys)) {
		switch {
		case s.Bytes && s.Keyed:
			s.Costs = append(s.Costs, max(1, s.Depth/l.Keys[i].Times))
		case s.Bytes:
			s.Costs = append(s.Costs, max(1, s.Depth))
		case s.Keyed:
			s.Costs = append(s.Costs, l.Charge(i, 0))
		default:
			s.Costs = append(s.Costs, l.Charge(-1, 0))
		}
	}
	return s
}

// String tells shapes apart.
func (s Shape) String() string {
	what := "packets"
	if s.Bytes {
		what = "bytes"
	}
	return fmt.Sprintf("unit %d, depth %d, %d %s for %v", s.Shift, s.Depth, s.Amount, what, s.Costs)
}

// Stats counts the budgets of a memory.
type Stats struct {
	Slots            int     `json:"slots"`             // in all
	Live             int     `json:"live"`              // in debt
	Evicted          uint64  `json:"evicted"`           // in debt, and another key took slot and debt
	InheritedSeconds float64 `json:"inherited_seconds"` // these debts
	// Contended are packets dropped as other CPUs changed their slot again and again.
	Contended uint64 `json:"contended"`
}

// Read counts what is in the memory of a limit at a time in jiffies.
func Read(memory []byte, l Shape, jiffies, hz uint64) Stats {
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(memory[at:]) }
	s := Stats{
		Slots: 1, Evicted: word(atEvicted),
		InheritedSeconds: time.Duration(word(atInherited) << l.Shift).Seconds(),
		Contended:        word(atContended),
	}
	if l.Keyed {
		s.Slots = (len(memory) - Head) / 8
	}
	now := jiffies * Tick(hz) >> l.Shift << tagBits
	for at := Head; at < len(memory); at += 8 {
		if debt := (word(at) - now) >> tagBits; word(at) != 0 && debt-1 < l.Depth {
			s.Live++
		}
	}
	return s
}

// Tick returns how long a jiffy counts, in nanoseconds.
func Tick(hz uint64) uint64 { return (uint64(time.Second) + hz/2) / hz }
