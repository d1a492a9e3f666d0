package plan

import (
	"levee/internal/filter/ir"
	"levee/internal/filter/price"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
)

// Instructions of what package codegen emits, at most, as the kernel counts them: a load of 64 bits
// is two. TestProgramsAreWhatPlansState holds them against programs.
const (
	sizeValue      = 3   // a number of the packet into a register
	sizeAddress    = 5   // both halves of an address
	sizeVerdict    = 2   // a response, and the jump to the program's end
	sizeCount      = 10  // the effect that counts
	sizeFlow       = 160 // looking a connection up, without its functions
	sizeForeign    = 64  // an effect without a row
	sizeStream     = 80  // hashing the flow of a stream
	sizeEcho       = 100 // asking whether the flow is proven, without the functions
	sizeRow        = 7   // finding this CPU's row of counters
	sizeBytes      = 44  // comparing bytes of the packet
	sizeAskSearch  = 14  // asking whether the payload contains a text, without the functions
	sizeSearch     = 700 // these: 64 bytes of the payload a round
	sizeMessage    = 40  // asking a DNS message, without the functions
	sizeInner      = 10  // whether a match on a packet within a tunnel holds
	sizeNote       = 6   // noting that
	sizeLookInside = 160 // finding tunnels, without the function
	// of a function of rules or of bytecode, with the question whether it decided
	sizeCall     = 6
	sizeFunction = 32  // of rules: its begin and end, registers
	sizeTree     = 960 // a look-up in a rule tree: its fields, four trees in place
	sizeDynamic  = 16  // a look-up in a dynamic set, without its function
	sizeBits     = 18  // a look-up in a bitmap
	sizeLookup   = 380 // the functions of a dynamic set, for addresses, endpoints or names
	sizeBulk     = 820 // and of one of addresses that has a bulk
	// of the main function: the fast path, what is malformed, trials, the verdict
	sizeMain   = 1_200
	sizeChain  = 30    // and of each chain in it: registers and jumps
	sizeFollow = 1_200 // functions that walk what follows rule trees, of a family
	sizeArm    = 40    // of a list of endpoints that bytecode looks up, besides the rule tree
	sizeEngine = 2_400 // the interpreter
	sizeAsked  = 8     // of it for each function that it may call
)

// effectCosts holds the size and the time of effects as straight code: those that need no memory,
// and those of the rows of package state.
var effectCosts = func() map[action.Action]effectCost {
	out := map[action.Action]effectCost{action.Count: {sizeCount, price.Core(price.Count), nil}}
	for i := range state.Table {
		for _, c := range state.Table[i].Calls {
			out[c.Action] = effectCost{c.Size, c.Time, c.Asks}
		}
	}
	return out
}()

type effectCost struct {
	size int
	time price.Time
	asks []field.Field // besides those of the match
}

// decoderSize returns the careful decoder of a target, which clang makes.
func decoderSize(t Target) int {
	if t.Hook == XDP && !t.Frags {
		return 1_000
	}
	return 1_800
}

// prefixSize returns what it takes to compare an address with a prefix.
func prefixSize(f ir.Family, bits int) int {
	switch {
	case f == ir.IPv4:
		return 3
	case bits <= 64:
		return 5
	}
	return 12
}

// sizeOf counts the instructions of a condition of straight code.
func (p *planner) sizeOf(f ir.Family, c *ir.Cond) (n int) {
	each := 3 // a range: two compares and a jump
	if wide(c.Field) {
		each = 7
	}
	switch how(c) {
	case InTable:
		return p.lookupSize(f, c)
	case Halving:
		return sizeValue + (each+1)*len(c.Ranges) + 1
	}
	switch {
	case c.Field.Info().Compare == field.ByMask:
		return sizeValue + 1
	case c.Pairs != nil:
		for _, pair := range c.Pairs {
			n += prefixSize(f, pair.Prefix.Bits()) + sizeValue + each
		}
		return n
	case c.Prefixes != nil:
		for _, prefix := range c.Prefixes {
			n += prefixSize(f, prefix.Bits()) + 1
		}
		return n
	}
	return sizeValue + each*len(c.Ranges)
}

// lookupSize counts the instructions of a look-up, without functions that look-ups share.
func (p *planner) lookupSize(f ir.Family, c *ir.Cond) int {
	switch {
	case c.Dynamic():
		return sizeDynamic
	case c.Pairs != nil:
		return sizeTree
	case c.Prefixes != nil:
		return sizeAddress + p.prefixTable(f, c).Prefixes.Instructions() + 1
	case wide(c.Field):
		return sizeValue + 4 + p.ethernetTable(c).Prefixes.Instructions()
	}
	return sizeValue + sizeBits + 4*beyondBits(c.Ranges)
}
