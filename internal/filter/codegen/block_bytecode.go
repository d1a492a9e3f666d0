package codegen

import (
	"encoding/binary"
	"math"
	"net/netip"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Rules of which there are too many for code of their own become records in a table, which one loop
// walks for each packet: the verifier sees the loop, whatever the number of rules. This file says
// what the records are and makes them; bytecode_cuts.go puts few of them in a packet's way,
// interpreter.go is the loop.
//
// A record has four words: what to do, and up to three operands. Records are addressed by number.
// The records of a rule stand one behind the other, each a question, the last what the rule does; a
// question whose answer is no ends the rule, or goes to a later record of it. A list names rules by
// the number of their first record, in the order of the policy. Between the lists stands a tree of
// records that compare a field with a bound.
type op uint8

const (
	// goes on if (field & operand 0) - operand 1 <= operand 2, as unsigned numbers
	opTest op = iota
	// goes to the lower half of operand 2 if field & operand 0 < operand 1, else to the upper half
	opCut
	// goes on if the field lies between bounds: operand 1 the first of them, operand 2 how many
	opSearch
	opWide // the same for a field of two words
	// goes on if function number operand 1 says so of the address and of the dynamic set, or of
	// arm, operand 2
	opLookup
	// goes on if address and service are in the dynamic set of function number operand 1; operand 2
	// see serviceOperand
	opEndpoint
	opDecide // the rule decides: operand 0 is its slot << 32 | response; the list ends
	opCount  // counts the packet at offset operand 0 of the row; the list goes on
	// tries the rules from entry operand 0 of the lists on, then goes to operand 1
	opList
	opEnd // no rule is left
)

// record as the table holds it, little-endian. The lower half of the first word has, byte by byte:
// the op; the offset in struct key of 8 bytes that hold the field; how many bits to shift these
// right; 1 if the rule wants the answer no. The upper half, for opTest, is how many records to skip
// if the answer is the wrong one; 0 ends the rule.
type record [plan.RecordBytes / 8]uint64

// skip returns a record that always goes n records on, or ends the rule for 0.
func skip(n int) record { return record{uint64(opTest) | uint64(n)<<32, 0, 1, 0} }

// wordOf gives the first word of a record that reads a field of n bytes at an offset of struct key.
// Reads have 8 bytes, and end where the struct does.
func wordOf(o op, at int16, n int, not bool) uint64 {
	off := int(at - env.KeyAt)
	shift := 0
	if last := int(env.KeySize) - 8; n < 8 && off > last {
		off, shift = last, 8*(off-last)
	}
	w := uint64(o) | uint64(off)<<8 | uint64(shift)<<16
	if not {
		w |= 1 << 24
	}
	return w
}

func maskOf(n int) uint64 { return ^uint64(0) >> (64 - 8*n) }

// bytecode collects the records of all chains. What is the same is there once.
type bytecode struct {
	records table[record]
	lists   table[uint64] // slot << 32 | first record of the rule; endOfList behind the last
	bounds  table[uint64] // where membership changes, ascending within each list of ranges
	wide    table[uint64] // the same for addresses of two words, upper word first

	body    []record // scratch: the rule that is being made
	number  []uint64 // scratch: bounds, or a list
	bodies  shared   // records of rules
	sorted  shared   // bounds
	sorted2 shared   // wide ones
	starts  []uint32 // of each bytecode of the plan, the first record
	bytes   []int    // that it takes
}

// endOfList is above every entry of a rule and above what stands for "not decided".
const endOfList = ^uint64(0)

func newBytecode() *bytecode {
	m := &bytecode{}
	m.add(record{uint64(opEnd)}) // number 0
	return m
}

// body makes the records of rule i of some and gives the number of the first.
func (c *compiler) body(b *plan.Bytecode, i int) uint32 {
	m, r := c.bytecode, &b.Rules[i]
	out := m.body[:0]
	for i := range r.Conds {
		if !plan.InPacket(&r.Conds[i]) {
			out = c.questionRecords(b.Family, &r.Conds[i], out)
		}
	}
	out = c.extraRecords(plan.ExtraKey{Bytecode: b.Number, Rule: i}, r, out)
	out = c.effectRecords(r, out)
	if r.Action.Decides() {
		out = append(out, record{uint64(opDecide),
			uint64(r.Slot)<<32 | uint64(plan.ResponseOf(r).Word())})
	}
	m.body = out
	return uint32(share(&m.records, &m.bodies, out))
}

// questionRecords appends the records of a condition.
func (c *compiler) questionRecords(f ir.Family, q *ir.Cond, out []record) []record {
	if q.Number != 0 {
		return c.endpointRecords(f, q, out)
	}
	at, n := c.FieldAt(q.Field)
	switch how := q.Field.Info().Compare; {
	case how == field.ByPrefix:
		return c.addressRecords(q, at, f == ir.IPv4, out)
	case how == field.ByMask:
		return append(out, record{wordOf(opTest, at, n, q.Not), uint64(q.Mask), uint64(q.Value), 0})
	case how != field.ByRange:
		panic(env.Unknown(q.Field))
	case len(q.Ranges) == 1:
		r := q.Ranges[0]
		return append(out, record{wordOf(opTest, at, n, false), maskOf(n), r.Lo, r.Hi - r.Lo})
	}
	bounds := c.bytecode.number[:0]
	for _, r := range q.Ranges {
		bounds = append(bounds, r.Lo)
		if r.Hi < math.MaxUint64 { // behind the highest of 64 bits nothing changes
			bounds = append(bounds, r.Hi+1)
		}
	}
	c.bytecode.number = bounds
	return append(out, c.search(wordOf(opSearch, at, n, false), maskOf(n), bounds))
}

func (c *compiler) search(word, mask uint64, bounds []uint64) record {
	m := c.bytecode
	return record{word, mask, uint64(share(&m.bounds, &m.sorted, bounds)), uint64(len(bounds))}
}

// addressRecords appends the questions of a condition on an address.
func (c *compiler) addressRecords(q *ir.Cond, at int16, ip4 bool, out []record) []record {
	if n, _, ok := c.Plan.Interpreter.Lookup(c.Plan, q, ip4); ok {
		return append(out, record{wordOf(opLookup, at, 8, q.Not), ^uint64(0), uint64(n),
			c.keyOf(q)})
	}
	if ip4 {
		if len(q.Prefixes) == 1 {
			lo, hi := bounds4(q.Prefixes[0])
			return append(out, record{wordOf(opTest, at, 8, q.Not), maskOf(4), lo, hi - lo})
		}
		bounds := c.bytecode.number[:0]
		for _, p := range q.Prefixes {
			lo, hi := bounds4(p)
			bounds = append(bounds, lo, hi+1)
		}
		c.bytecode.number = bounds
		return append(out, c.search(wordOf(opSearch, at, 8, q.Not), maskOf(4), bounds))
	}
	if p := q.Prefixes[0]; len(q.Prefixes) == 1 && !q.Not {
		return onePrefixRecords(out, p, at)
	}
	bounds := c.bytecode.number[:0]
	for _, p := range q.Prefixes {
		hi, lo := words6(p.Addr())
		bounds = append(bounds, hi, lo)
		if hi, lo, ok := behind6(hi, lo, p.Bits()); ok {
			bounds = append(bounds, hi, lo)
		}
	}
	m := c.bytecode
	m.number = bounds
	first := share(&m.wide, &m.sorted2, bounds)
	return append(out, record{wordOf(opWide, at, 8, q.Not), ^uint64(0), uint64(first / 2),
		uint64(len(bounds) / 2)})
}

// onePrefixRecords appends the questions whether the address at a place is in a prefix that is not
// all of them.
func onePrefixRecords(out []record, p netip.Prefix, at int16) []record {
	if p.Addr().Is4() {
		lo, hi := bounds4(p)
		return append(out, record{wordOf(opTest, at, 8, false), maskOf(4), lo, hi - lo})
	}
	hi, lo := words6(p.Addr())
	out = append(out, record{wordOf(opTest, at, 8, false), ^uint64(0) << (64 - min(p.Bits(), 64)),
		hi, 0})
	if p.Bits() > 64 {
		out = append(out, record{wordOf(opTest, at+8, 8, false), ^uint64(0) << (128 - p.Bits()), lo,
			0})
	}
	return out
}

// addressOf returns the address field of an endpoint field; any other field as it is.
func addressOf(f field.Field) field.Field {
	if a := f.Info().Address; a != field.None {
		return a
	}
	return f
}

// endpointRecords appends the question whether address and number are one of the endpoints of a
// list: a look-up, or one endpoint after the other.
func (c *compiler) endpointRecords(f ir.Family, q *ir.Cond, out []record) []record {
	if q.Dynamic() {
		return append(out, c.dynamicRecord(f, q))
	}
	if _, arm, ok := c.Plan.Interpreter.Lookup(c.Plan, q, f == ir.IPv4); ok {
		return append(out, c.armRecord(arm, q.Not))
	}
	first := len(out)
	for pairs := q.Pairs; len(pairs) > 0; {
		n := 1
		for n < len(pairs) && pairs[n].Range == pairs[0].Range {
			n++
		}
		out = c.sameNumberRecords(q, pairs[:n], out)
		pairs = pairs[n:]
	}
	if !q.Not {
		out = append(out, skip(0)) // none was found
	}
	for i := first; i < len(out); i++ {
		if out[i][0]>>32 != found {
			continue
		}
		if out[i][0] &= 1<<32 - 1; !q.Not { // behind the question; else the rule ends
			out[i][0] |= uint64(len(out)-i) << 32
		}
	}
	return out
}

// found stands for how many records to go on where an endpoint of the list was found, until that is
// known.
const found = 1<<32 - 1

// sameNumberRecords appends the questions for endpoints with the same number: first for the number,
// then prefix by prefix. A packet that has none of them goes on behind these records.
func (c *compiler) sameNumberRecords(q *ir.Cond, pairs []ir.Pair, out []record) []record {
	at, _ := c.FieldAt(addressOf(q.Field))
	numberAt, size := c.FieldAt(q.Number)
	r, begin := pairs[0].Range, len(out)
	out = append(out, record{wordOf(opTest, numberAt, size, false), maskOf(size), r.Lo,
		r.Hi - r.Lo})
	for _, p := range pairs {
		if p.Prefix.Bits() == 0 {
			out = append(out, skip(found))
			continue
		}
		i := len(out)
		out = onePrefixRecords(out, p.Prefix, at)
		last := len(out) - 1
		if last > i {
			out[i][0] |= 2 << 32 // to the next prefix
		}
		out[last][0] |= 1<<24 | found<<32 // goes on if it is not in the prefix
	}
	out[begin][0] |= uint64(len(out)-begin) << 32
	return out
}

// keyOf returns the number of a dynamic set that shares its map, 0 for all else.
func (c *compiler) keyOf(q *ir.Cond) uint64 { return uint64(c.Plan.Places[q.Set].Key) }

// dynamicRecord asks a dynamic set of endpoints or services; a set of services is asked without an
// address. The record says the protocol and the direction: with a function for each combination a
// program would exceed the kernel's number of functions.
func (c *compiler) dynamicRecord(f ir.Family, q *ir.Cond) record {
	mask, ip4 := ^uint64(0), f == ir.IPv4
	if q.Field.Info().Address == field.None {
		mask, ip4 = 0, true
	}
	n := c.Plan.Interpreter.Endpoint(plan.SetKey{Map: c.Plan.Places[q.Set].Map, IPv4: ip4})
	at := env.KeySrcHi
	if q.Field.Info().Address == field.DstAddr {
		at = env.KeyDstHi
	}
	return record{wordOf(opEndpoint, at, 8, q.Not), mask, uint64(n), c.serviceOperand(q)}
}

// serviceOperand says how protocol<<16 | port is made of a packet: bits 0-23 are kept of 8 bytes of
// struct key, which begin where bits 32-39 say and are shifted by bits 40-45; bits 24-31 are the
// protocol, 0 if it comes with them. Bits 48-63 are the number of a set that shares its map.
func (c *compiler) serviceOperand(q *ir.Cond) uint64 {
	keep, place := uint64(0), uint64(0)
	switch {
	case q.Number == field.Proto:
		keep, place = 0xff<<16, wordOf(0, env.KeyProto-2, 3, false)
	case policy.HasPorts(q.Proto):
		at, n := c.FieldAt(q.Number)
		keep, place = 0xffff, wordOf(0, at, n, false)
	}
	return keep | uint64(q.Proto)<<24 | place>>8&0x3fff<<32 | c.keyOf(q)<<48
}

// armRecord asks an arm.
func (c *compiler) armRecord(arm int, not bool) record {
	function := c.Plan.Interpreter.Arms[arm].Function
	return record{wordOf(opLookup, env.KeySrcHi, 8, not), ^uint64(0), uint64(function), uint64(arm)}
}

// bounds4 returns the first and the last address of an IPv4 prefix.
func bounds4(p netip.Prefix) (lo, hi uint64) {
	lo = uint64(env.FourBytes(p.Addr().As4()))
	return lo, lo | (1<<(32-p.Bits()) - 1)
}

func words6(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// behind6 returns the address after the last one of a prefix that begins at (hi, lo). ok is false
// if the prefix ends at the last address of IPv6.
func behind6(hi, lo uint64, bits int) (uint64, uint64, bool) {
	if bits > 64 {
		if lo += 1 << (128 - bits); lo != 0 {
			return hi, lo, true
		}
		return hi + 1, 0, hi+1 != 0
	}
	if bits == 0 {
		return 0, 0, false
	}
	hi += 1 << (64 - bits)
	return hi, 0, hi != 0
}

// Names of the tables of bytecode.
const (
	recordsTable = "interpreter_records"
	listsTable   = "interpreter_lists"
	boundsTable  = "interpreter_bounds"
	wideTable    = "interpreter_wide"
)

// place gives the tables a place. They are never empty: a pointer needs a place.
func (m *bytecode) place(c *compiler) {
	c.room(recordsTable, plan.RecordBytes*m.records.n, func(to []byte) {
		m.records.drain(func(piece []record) {
			for i := range piece {
				to = putWords(to, piece[i][:])
			}
		})
	})
	for _, t := range []struct {
		name  string
		words *table[uint64]
	}{{listsTable, &m.lists}, {boundsTable, &m.bounds}, {wideTable, &m.wide}} {
		c.room(t.name, max(16, 8*t.words.n), func(to []byte) {
			t.words.drain(func(piece []uint64) { to = putWords(to, piece) })
		})
	}
}

// putWords writes words and gives what is behind them.
func putWords(to []byte, words []uint64) []byte {
	for i, w := range words {
		binary.LittleEndian.PutUint64(to[8*i:], w)
	}
	return to[8*len(words):]
}

// add appends a record and gives its number.
func (m *bytecode) add(r record) uint32 { return uint32(m.records.add([]record{r})) }

// callBytecode goes to the one call of the interpreter, and comes back with its answer. Verifiers
// since Linux 7.3 follow each way to a function that is given memory, up to 10,000 of them, and
// those through the interpreter would be as many for each call.
func (c *compiler) callBytecode(b *plan.Bytecode) {
	behind := c.Fresh("behind")
	c.Emit(
		asm.Mov.Imm32(asm.R2, int32(c.bytecode.starts[b.Number])),
		asm.StoreImm(asm.R10, env.MainBehind, int64(len(c.behind)), asm.Word),
		asm.Ja.Label("interpret"),
	)
	c.behind = append(c.behind, behind)
	c.Label(behind)
}

// interpret calls the interpreter for callBytecode.
func (c *compiler) interpret() {
	if len(c.behind) == 0 {
		return
	}
	c.Label("interpret")
	c.giveEnv()
	if c.anyLooks {
		c.Context(asm.R3)
	}
	c.Emit(
		asm.Call.Label(interpreter),
		asm.JNE.Imm(asm.R0, 0, "decided"),
		asm.LoadMem(asm.R1, asm.R10, env.MainBehind, asm.Word),
	)
	for i, label := range c.behind[1:] {
		c.Emit(asm.JEq.Imm(asm.R1, int32(i+1), label))
	}
	c.Emit(asm.Ja.Label(c.behind[0]))
}
