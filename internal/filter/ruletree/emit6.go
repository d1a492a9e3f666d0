package ruletree

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// A look-up of an IPv6 packet takes it from memory on the stack: its keys as 64-bit numbers in host
// order at these offsets, PacketBytes in all. What is behind the keys is room of the look-up's own,
// but for the last word, which the caller fills with anything. It overwrites R0 to R5 and R7.
const (
	SrcAt   = 0
	SrcLoAt = 8
	DstAt   = 16
	DstLoAt = 24
	PortsAt = 32 // the first number<<16 | the second

	keys6 = 5

	PacketBytes = (codeMask + 1) * wordBytes
)

// packet6 is an IPv6 packet in memory.
type packet6 struct {
	*emitter
	memory
}

// prepare fills what is no key: a descriptor's code has room for more, and the verifier does not
// know that none is named.
func (e *packet6) prepare() {
	e.Emit(asm.Mov.Imm(asm.R0, 0))
	for i := int16(keys6); i < codeMask; i++ {
		e.Emit(asm.StoreMem(e.base, e.at+i*wordBytes, asm.R0, asm.DWord))
	}
}

func (e *packet6) key(to asm.Register, code int) {
	e.Emit(asm.LoadMem(to, e.base, e.at+int16(code)*wordBytes, asm.DWord))
}

// gated puts the key that the descriptor names, shifted, into R4.
func (e *packet6) gated() {
	e.Emit(
		asm.Mov.Reg(asm.R3, regD),
		asm.RSh.Imm(asm.R3, codeShift-wordLog),
		asm.And.Imm(asm.R3, codeMask<<wordLog),
		asm.Mov.Reg(asm.R4, e.base),
		asm.Add.Reg(asm.R4, asm.R3),
		asm.LoadMem(asm.R4, asm.R4, e.at, asm.DWord),
		asm.Mov.Reg(asm.R3, regD),
		asm.RSh.Imm(asm.R3, bitsShift),
		asm.RSh.Reg(asm.R4, asm.R3), // takes the lower six bits (RFC 9669 section 4.1)
	)
}

func (e *packet6) step(leaf string) {
	e.Emit(asm.JSLT.Imm(regD, 0, leaf))
	e.gated()
}

func (e *packet6) entry(other string) {
	const last = (entry6 - 1) * wordBytes
	for i := range 4 {
		e.key(asm.R0, i)
		e.Emit(
			asm.LoadMem(asm.R3, regD, int16(i)*wordBytes, asm.DWord),
			asm.Xor.Reg(asm.R3, asm.R0),
			asm.LoadMem(asm.R4, regD, int16(4+i)*wordBytes, asm.DWord),
			asm.And.Reg(asm.R3, asm.R4),
			asm.JNE.Imm(asm.R3, 0, other),
		)
	}
	e.key(asm.R0, portCode(128))
	for i, shift := range []int32{16, 0} {
		const ports = last - wordBytes
		e.Emit(asm.Mov.Reg(asm.R3, asm.R0), asm.RSh.Imm(asm.R3, shift))
		e.Emit(
			asm.And.Imm(asm.R3, 0xffff),
			asm.LoadMem(asm.R4, regD, ports+int16(4*i), asm.Half),
			asm.Sub.Reg(asm.R3, asm.R4),
			asm.LoadMem(asm.R4, regD, ports+int16(4*i)+2, asm.Half),
			asm.JGT.Reg(asm.R3, asm.R4, other),
		)
	}
	e.Emit(asm.LoadMem(asm.R0, regD, last, asm.DWord), asm.RSh.Imm(asm.R0, needShift))
}

func (e *packet6) call(following string) {
	e.Emit(
		asm.Mov.Reg(asm.R2, regD),
		asm.Mov.Reg(asm.R3, regBest),
		asm.Mov.Reg(asm.R1, e.base),
		asm.Add.Imm(asm.R1, int32(e.at)),
		asm.Call.Label(following),
	)
}

func (e *packet6) begin(label string) {
	given := e.Fresh("given")
	e.Global(label, assembler.Memory("packet", PacketBytes), assembler.Number("next"),
		assembler.Number("best"))
	e.Emit(
		// A global function has to reckon with no memory at all.
		asm.JNE.Imm(asm.R1, 0, given),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	e.Label(given)
	e.Emit(asm.Mov.Reg(e.base, asm.R1), asm.Mov.Reg(regD, asm.R2), asm.Mov.Reg(regBest, asm.R3))
}

func (e *packet6) save() {
	e.Emit(asm.StoreMem(asm.R10, stateFields-stateBytes, e.base, asm.DWord))
}

func (e *packet6) restore(state asm.Register) {
	e.Emit(asm.LoadMem(e.base, state, stateFields, asm.DWord))
}
