package codegen

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
	"levee/internal/filter/prefix"
	"levee/internal/lang/field"
)

// Lists of up to maxLinear ranges are compared one by one; longer ones by a tree of compares, and
// beyond maxTree by a table. Numbers of 8 bits have no more than 128 ranges and stay with the tree.
const (
	maxLinear = 4
	maxTree   = 8
)

// bitmapBytes holds a bit for each value of 16 bits.
const bitmapBytes = 1 << 16 / 8

// number asks whether a numeric field lies in one of the ranges.
func (c *compiler) number(q *ir.Cond, no string) {
	reg, wide := c.value(q.Field)
	switch {
	case len(q.Ranges) <= maxLinear:
		yes := c.fresh("yes")
		for i, r := range q.Ranges {
			if i == len(q.Ranges)-1 {
				c.inside(reg, r, wide, no)
				break
			}
			other := c.fresh("other")
			c.inside(reg, r, wide, other)
			c.emit(asm.Ja.Label(yes))
			c.label(other)
		}
		c.label(yes)
	case len(q.Ranges) > maxTree && wide:
		c.macs(reg, q.Ranges, no)
	case len(q.Ranges) > maxTree && q.Ranges[len(q.Ranges)-1].Hi > math.MaxUint8:
		c.bitmap(reg, q.Ranges, no)
	default:
		yes := c.fresh("yes")
		c.tree(reg, q.Ranges, wide, yes, no)
		c.label(yes)
	}
}

// value gives a scratch register that holds a field; wide says that it has more than 32 bits.
func (c *compiler) value(f field.Field) (reg asm.Register, wide bool) {
	if reg, hot := hotRegister(f); hot {
		c.copy(asm.R1, reg)
		return asm.R1, false
	}
	at, n := c.fieldAt(f)
	c.field(asm.R1, at, sizeOf(n))
	if wide = n > 4; wide {
		c.copy(asm.R1, asm.R1)
	}
	return asm.R1, wide
}

// inside goes to no unless reg lies in r.
func (c *compiler) inside(reg asm.Register, r field.Range, wide bool, no string) {
	if r.Lo == r.Hi {
		c.compare(asm.JNE, reg, r.Lo, wide, no)
		return
	}
	if r.Lo > 0 {
		c.compare(asm.JLT, reg, r.Lo, wide, no)
	}
	if wide || r.Hi < math.MaxUint32 {
		c.compare(asm.JGT, reg, r.Hi, wide, no)
	}
}

// compare jumps if reg op v holds; unsigned.
func (c *compiler) compare(op asm.JumpOp, reg asm.Register, v uint64, wide bool, to string) {
	switch {
	case !wide:
		c.emit(op.Imm32(reg, word32(uint32(v)), to))
	case v <= math.MaxInt32:
		c.emit(op.Imm(reg, int32(v), to))
	default:
		c.emit(asm.LoadImm(asm.R2, int64(v), asm.DWord), op.Reg(reg, asm.R2, to))
	}
}

// tree finds reg among sorted ranges by halving.
func (c *compiler) tree(reg asm.Register, rs []field.Range, wide bool, yes, no string) {
	if len(rs) == 0 {
		c.emit(asm.Ja.Label(no))
		return
	}
	mid := len(rs) / 2
	below := c.fresh("below")
	c.compare(asm.JLT, reg, rs[mid].Lo, wide, below)
	c.compare(asm.JLE, reg, rs[mid].Hi, wide, yes)
	c.tree(reg, rs[mid+1:], wide, yes, no)
	c.label(below)
	c.tree(reg, rs[:mid], wide, yes, no)
}

// bitmap looks a number up in a table of bits. Only lengths go beyond 16 bits, and with so few ranges
// there that these are found by compares.
func (c *compiler) bitmap(reg asm.Register, rs []field.Range, no string) {
	yes := c.fresh("yes")
	if rs[len(rs)-1].Hi > math.MaxUint16 {
		small := c.fresh("small")
		c.compare(asm.JLE, reg, math.MaxUint16, false, small)
		first := slices.IndexFunc(rs, func(r field.Range) bool { return r.Hi > math.MaxUint16 })
		c.tree(reg, rs[first:], false, yes, no)
		c.label(small)
	}
	set := make([]byte, bitmapBytes)
	for _, r := range rs {
		for v := r.Lo; v <= min(r.Hi, math.MaxUint16); v++ {
			set[v/8] |= 1 << (v % 8)
		}
	}
	name, ok := c.bitmaps[string(set)]
	if !ok {
		name = fmt.Sprintf("bits_%d", len(c.bitmaps))
		c.bitmaps[string(set)] = name
		c.constant(name, set)
		c.table(fmt.Sprintf("%d ranges of a number", len(rs)), "bitmap", len(set),
			fmt.Sprintf("more than %d ranges: one load instead of compares", maxTree))
	}
	c.emit(
		asm.And.Imm(reg, 0xffff), // the verifier's bound
		asm.Mov.Reg(asm.R2, reg),
		asm.RSh.Imm(reg, 3),
		asm.And.Imm(asm.R2, 7),
		asm.LoadMapValue(asm.R3, 0, 0).WithReference(name),
		asm.Add.Reg(asm.R3, reg),
		asm.LoadMem(asm.R3, asm.R3, 0, asm.Byte),
		asm.RSh.Reg(asm.R3, asm.R2),
		asm.And.Imm(asm.R3, 1),
		asm.JEq.Imm(asm.R3, 0, no),
	)
	c.label(yes)
}

// macs looks an Ethernet address up in a table of package prefix, as the upper 48 bits of an IPv6
// address.
func (c *compiler) macs(reg asm.Register, rs []field.Range, no string) {
	key := make([]byte, 0, 16*len(rs))
	for _, r := range rs {
		key = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(key, r.Lo), r.Hi)
	}
	t, ok := c.ethernet[string(key)]
	if !ok {
		t = static{prefix.NewStatic6(macPrefixes(rs)), fmt.Sprintf("macs_%d", len(c.ethernet))}
		c.ethernet[string(key)] = t
		c.constant(t.name, t.Bytes())
		c.table(fmt.Sprintf("%d ranges of Ethernet addresses", len(rs)), t.Kind(), len(t.Bytes()), "as prefixes; "+t.Why())
	}
	if reg != asm.R1 {
		c.emit(asm.Mov.Reg(asm.R1, reg))
	}
	c.emit(asm.LSh.Imm(asm.R1, 16), asm.Mov.Imm(asm.R2, 0))
	t.Emit(c.Builder, t.name)
	c.emit(asm.JEq.Imm(asm.R0, 0, no))
}

// macPrefixes covers ranges of 48 bits by the fewest prefixes of the upper bits of IPv6 addresses.
func macPrefixes(rs []field.Range) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range rs {
		for lo := r.Lo; lo <= r.Hi; {
			open := bits.Len64(r.Hi-lo+1) - 1 // log2 of the largest block that fits
			if lo != 0 {
				open = min(open, bits.TrailingZeros64(lo)) // and is aligned
			}
			var a [16]byte
			binary.BigEndian.PutUint64(a[:8], lo<<16)
			out = append(out, netip.PrefixFrom(netip.AddrFrom16(a), 48-open))
			lo += 1 << open
		}
	}
	return out
}
