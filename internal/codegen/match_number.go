package codegen

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/ir"
	"levee/internal/policy"
)

// Lists of up to maxLinear ranges are compared one by one; longer ones by a tree of compares, and
// beyond maxTree, for fields of 16 bits, by a bitmap.
const (
	maxLinear = 4
	maxTree   = 8
)

// bitmapBytes holds a bit for each value of a 16-bit field.
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
	case len(q.Ranges) > maxTree && bits16(q.Field):
		c.bitmap(reg, q.Ranges, no)
	default:
		yes := c.fresh("yes")
		c.tree(reg, q.Ranges, wide, yes, no)
		c.label(yes)
	}
}

func bits16(f policy.Field) bool {
	switch f {
	case policy.SrcPort, policy.DstPort, policy.ICMPType, policy.ICMP6Type, policy.EtherType:
		return true
	}
	return false
}

// value gives a scratch register that holds a field; wide says that it has more than 32 bits.
func (c *compiler) value(f policy.Field) (reg asm.Register, wide bool) {
	at, size := int16(0), asm.Byte
	switch f {
	case policy.DstPort, policy.ICMPType, policy.ICMP6Type:
		c.copy(asm.R1, regDstPort)
		return asm.R1, false
	case policy.SrcPort:
		c.copy(asm.R1, regSrcPort)
		return asm.R1, false
	case policy.Proto:
		at = keyProto
	case policy.TTL:
		at = keyTTL
	case policy.DSCP:
		at = keyDSCP
	case policy.Tags:
		at = keyTags
	case policy.EtherType:
		at, size = keyEtherType, asm.Half
	case policy.VLAN:
		at, size = keyVLAN, asm.Half
	case policy.InnerVLAN:
		at, size = keyInnerVLAN, asm.Half
	case policy.Len:
		at, size = keyLen, asm.Word
	case policy.SrcMAC:
		at, size, wide = keySrcMAC, asm.DWord, true
	case policy.DstMAC:
		at, size, wide = keyDstMAC, asm.DWord, true
	default:
		panic(fmt.Sprintf("field %d is not a number", f))
	}
	c.field(asm.R1, at, size)
	if wide {
		c.copy(asm.R1, asm.R1)
	}
	return asm.R1, wide
}

// inside goes to no unless reg lies in r.
func (c *compiler) inside(reg asm.Register, r policy.Range, wide bool, no string) {
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
func (c *compiler) tree(reg asm.Register, rs []policy.Range, wide bool, yes, no string) {
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

// bitmap looks a 16-bit field up in a table of bits.
func (c *compiler) bitmap(reg asm.Register, rs []policy.Range, no string) {
	bits := make([]byte, bitmapBytes)
	for _, r := range rs {
		for v := r.Lo; v <= r.Hi; v++ {
			bits[v/8] |= 1 << (v % 8)
		}
	}
	name, ok := c.bitmaps[string(bits)]
	if !ok {
		name = fmt.Sprintf("bits_%d", len(c.bitmaps))
		c.bitmaps[string(bits)] = name
		c.maps[name] = constant(name, bits)
		c.table(fmt.Sprintf("%d ranges of a 16-bit field", len(rs)), "bitmap", len(bits),
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
}

// readOnlyProg is BPF_F_RDONLY_PROG.
const readOnlyProg = 1 << 7

// constant is a map that is one piece of memory which programs only read. It is not frozen: a
// frozen map would have the verifier track its contents for constant offsets, to no use.
func constant(name string, contents []byte) *ebpf.MapSpec {
	return &ebpf.MapSpec{
		Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(contents)), MaxEntries: 1,
		Flags:    readOnlyProg,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: contents}},
	}
}
