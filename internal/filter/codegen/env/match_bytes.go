package env

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
)

// udpHeader is the bytes in front of the payload.
const udpHeader = 8

// Payload compares bytes of the payload, where the packet has them. Their helper reads across the
// buffers of a packet.
func (c *Code) Payload(q *ir.Cond, no string) {
	const at = -16 // scratch
	n, first := len(q.Bytes.Value), int32(udpHeader+q.Bytes.At)
	load := asm.FnXdpLoadBytes
	if c.Target.Hook.OfSKB() {
		load = asm.FnSkbLoadBytes
	}
	c.Field(asm.R2, KeyLeft, asm.Half)
	c.Emit(asm.JLT.Imm(asm.R2, first+int32(n), no))
	c.transport(asm.R2)
	c.Emit(asm.Add.Imm(asm.R2, first))
	c.Context(asm.R1)
	c.Emit(
		asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, at),
		asm.Mov.Imm(asm.R4, int32(n)),
		load.Call(),
		asm.JNE.Imm(asm.R0, 0, no),
	)
	other := no
	if q.Not {
		other = c.Fresh("other")
	}
	for i := 0; i < n; {
		size := 8
		for size > n-i {
			size /= 2
		}
		value, mask := word(q.Bytes.Value[i:i+size]), word(q.Bytes.Mask[i:i+size])
		c.Emit(asm.LoadMem(asm.R1, asm.R10, at+int16(i), SizeOf(size)))
		if ^mask<<(64-8*size) != 0 {
			c.Emit(asm.LoadImm(asm.R2, int64(mask), asm.DWord), asm.And.Reg(asm.R1, asm.R2))
		}
		c.Emit(asm.LoadImm(asm.R2, int64(value), asm.DWord), asm.JNE.Reg(asm.R1, asm.R2, other))
		i += size
	}
	if q.Not {
		c.Emit(asm.Ja.Label(no))
		c.Label(other)
	}
}

// transport loads where the transport header begins, as helpers count that load bytes.
func (c *Code) transport(to asm.Register) {
	if c.Target.Hook == plan.Socket { // there
		c.Emit(asm.Mov.Imm(to, 0))
		return
	}
	c.Field(to, KeyOff, asm.Half)
}

// word returns bytes as a load of the machine gives them.
func word(b []byte) uint64 {
	var w [8]byte
	copy(w[:], b)
	return binary.LittleEndian.Uint64(w[:])
}
