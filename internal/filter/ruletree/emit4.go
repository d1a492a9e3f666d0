package ruletree

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// A look-up of an IPv4 packet takes it from registers: both addresses, source<<32 | destination,
// and its two numbers. It overwrites the others but R10.
const (
	RegAddresses = asm.R6
	RegPort1     = asm.R8
	RegPort0     = asm.R9
)

// packet4 is an IPv4 packet in registers. A step on an address is 14 instructions, of which only
// the load of the child reads memory: what a packet waits for is the chain of steps.
type packet4 struct{ *emitter }

// ports puts the key of ports into a register.
func (e *packet4) ports(to asm.Register) {
	e.Emit(asm.Mov.Reg(to, RegPort0), asm.LSh.Imm(to, 16), asm.Or.Reg(to, RegPort1))
}

func (e *packet4) key(to asm.Register, code int) {
	if code == portCode(32) {
		e.ports(to)
		return
	}
	e.Emit(asm.Mov.Reg(to, RegAddresses))
}

func (e *packet4) step(leaf string) {
	other, shifted := e.Fresh("other"), e.Fresh("shifted")
	e.Emit(
		asm.JSLT.Imm(regD, 0, other),
		asm.Mov.Reg(asm.R4, RegAddresses),
		asm.Mov.Reg(asm.R3, regD),
		asm.RSh.Imm(asm.R3, bitsShift),
		asm.RSh.Reg(asm.R4, asm.R3), // takes the lower six bits (RFC 9669 section 4.1)
	)
	e.Label(shifted)
	e.aside = append(e.aside, func() {
		e.Label(other)
		e.Emit(asm.Mov.Reg(asm.R3, regD), asm.LSh.Imm(asm.R3, 1), asm.JSLT.Imm(asm.R3, 0, leaf))
		e.ports(asm.R4)
		e.Emit(
			asm.Mov.Reg(asm.R3, regD),
			asm.RSh.Imm(asm.R3, bitsShift),
			asm.RSh.Reg(asm.R4, asm.R3),
			asm.And.Imm(asm.R4, 1<<(maxBits-1)-1), // without the bit of portKind
			asm.Ja.Label(shifted),
		)
	})
}

func (e *packet4) prepare() {}

// gated chooses between both keys without a branch.
func (e *packet4) gated() {
	e.ports(asm.R4)
	e.Emit(
		asm.Xor.Reg(asm.R4, RegAddresses),
		asm.Mov.Reg(asm.R3, regD),
		asm.LSh.Imm(asm.R3, 63-codeShift),
		asm.ArSh.Imm(asm.R3, 63), // all ones for ports
		asm.And.Reg(asm.R4, asm.R3),
		asm.Xor.Reg(asm.R4, RegAddresses),
		asm.Mov.Reg(asm.R3, regD),
		asm.RSh.Imm(asm.R3, bitsShift),
		asm.RSh.Reg(asm.R4, asm.R3),
	)
}

// entry asks for both addresses at once: a branch for each would be mispredicted more often.
func (e *packet4) entry(other string) {
	e.Emit(
		asm.LoadMem(asm.R3, regD, 0, asm.DWord),
		asm.LoadMem(asm.R4, regD, wordBytes, asm.DWord),
		asm.Xor.Reg(asm.R3, RegAddresses),
		asm.Mov.Reg(asm.R0, asm.R3),
		asm.RSh.Imm(asm.R0, 32),
		asm.RSh.Reg(asm.R0, asm.R4), // takes the lower six bits: what of the source is not open
		asm.RSh.Imm(asm.R4, openBits),
		asm.Mov.Reg32(asm.R3, asm.R3),
		asm.RSh.Reg(asm.R3, asm.R4),
		asm.Or.Reg(asm.R0, asm.R3),
		asm.JNE.Imm(asm.R0, 0, other),
		asm.RSh.Imm(asm.R4, pairShift-openBits),
		asm.And.Imm(asm.R4, pairMask(e.numbers)),
		asm.LSh.Imm(asm.R4, wordLog),
		asm.LoadMapValue(asm.R0, 0, 0).WithReference(e.maps.Ports),
		asm.Add.Reg(asm.R0, asm.R4),
	)
	for i, port := range []asm.Register{RegPort0, RegPort1} {
		e.Emit(
			asm.LoadMem(asm.R4, asm.R0, int16(4*i), asm.Half),
			asm.Mov.Reg(asm.R3, port),
			asm.Sub.Reg(asm.R3, asm.R4),
			asm.LoadMem(asm.R4, asm.R0, int16(4*i)+2, asm.Half),
			asm.JGT.Reg(asm.R3, asm.R4, other),
		)
	}
	e.Emit(asm.LoadMem(asm.R0, regD, wordBytes, asm.DWord), asm.RSh.Imm(asm.R0, needShift))
}

func (e *packet4) call(following string) {
	e.ports(asm.R4)
	e.Emit(
		asm.Mov.Reg(asm.R2, regBest),
		asm.Mov.Reg(asm.R3, RegAddresses),
		asm.Call.Label(following),
	)
}

func (e *packet4) begin(label string) {
	e.Global(label, assembler.Number("next"), assembler.Number("best"),
		assembler.Number("addresses"), assembler.Number("ports"))
	e.Emit(asm.Mov.Reg(regBest, asm.R2), asm.Mov.Reg(RegAddresses, asm.R3))
	e.part(asm.R4)
}

// part takes the key of ports apart.
func (e *packet4) part(ports asm.Register) {
	e.Emit(
		asm.Mov.Reg(RegPort0, ports),
		asm.RSh.Imm(RegPort0, 16),
		asm.Mov.Reg(RegPort1, ports),
		asm.And.Imm(RegPort1, 0xffff),
	)
}

func (e *packet4) save() {
	e.ports(asm.R2)
	e.Emit(
		asm.StoreMem(asm.R10, stateFields-stateBytes, RegAddresses, asm.DWord),
		asm.StoreMem(asm.R10, stateFields+wordBytes-stateBytes, asm.R2, asm.DWord),
	)
}

func (e *packet4) restore(state asm.Register) {
	e.Emit(
		asm.LoadMem(RegAddresses, state, stateFields, asm.DWord),
		asm.LoadMem(asm.R4, state, stateFields+wordBytes, asm.DWord),
	)
	e.part(asm.R4)
}
