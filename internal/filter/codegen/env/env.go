package env

import (
	"unsafe"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/plan"
)

// Where the environment (struct env of bpf/parse.h) lies on the stack of the main function, from
// R10 on. The 64 bytes above it are scratch of the table look-ups (package prefix); the slots
// below it are the function's own.
const (
	At        = -64 - int16(unsafe.Sizeof(parseEnv{}))
	effectsAt = At + int16(unsafe.Offsetof(parseEnv{}.Effects))
	InnerAt   = At + int16(unsafe.Offsetof(parseEnv{}.Inner))

	KeySize = uint32(unsafe.Sizeof(parseKey{}))
	KeyAt   = At + int16(unsafe.Offsetof(parseEnv{}.Key))
	RowAt   = KeyAt + int16(unsafe.Offsetof(parseKey{}.Row))
)

// Offsets from R10 of the fields of struct key.
const (
	KeyBytes    = KeyAt + int16(unsafe.Offsetof(parseKey{}.Bytes))
	KeySrcHi    = KeyAt + int16(unsafe.Offsetof(parseKey{}.SrcHi))
	KeySrcLo    = KeyAt + int16(unsafe.Offsetof(parseKey{}.SrcLo))
	KeyDstHi    = KeyAt + int16(unsafe.Offsetof(parseKey{}.DstHi))
	KeyDstLo    = KeyAt + int16(unsafe.Offsetof(parseKey{}.DstLo))
	KeySrcPort  = KeyAt + int16(unsafe.Offsetof(parseKey{}.SrcPort))
	KeyDstPort  = KeyAt + int16(unsafe.Offsetof(parseKey{}.DstPort))
	KeyICMP     = KeyAt + int16(unsafe.Offsetof(parseKey{}.Icmp))
	KeyProto    = KeyAt + int16(unsafe.Offsetof(parseKey{}.Proto))
	KeyClass    = KeyAt + int16(unsafe.Offsetof(parseKey{}.Class))
	keyFlow     = KeyAt + int16(unsafe.Offsetof(parseKey{}.Flow))
	KeyProof    = KeyAt + int16(unsafe.Offsetof(parseKey{}.Proof))
	KeyOff      = KeyAt + int16(unsafe.Offsetof(parseKey{}.Off))
	keyEcho     = KeyAt + int16(unsafe.Offsetof(parseKey{}.TcpFlags)) // of UDP
	KeyDatagram = KeyAt + int16(unsafe.Offsetof(parseKey{}.Datagram))
	KeyFrag     = KeyAt + int16(unsafe.Offsetof(parseKey{}.Frag))
	KeyLeft     = KeyAt + int16(unsafe.Offsetof(parseKey{}.Left))
	KeyWindow   = KeyAt + int16(unsafe.Offsetof(parseKey{}.TcpWindow))
)

// Slots of the main function and of those that are given the environment: its address, this
// CPU's row of counters, and the context. The last two are kept where a rule counts or looks at
// the packet.
const (
	mainRow = At - 8
	MainCtx = At - 16
	// What follows a call of the interpreter.
	MainBehind = At - 24
	// The hash of a packet over UDP that belongs to no known connection; 0 of any other.
	mainStranger = At - 32

	// The hash of a flow that may prove itself, before the rules.
	mainEcho = MainBehind

	Pointer    = -72
	rowPointer = -80
	ctxPointer = -88
)

// EnvBytes returns how many bytes of the environment a policy uses. A policy without effects that
// need the environment's end, or without matches on packets within tunnels, neither clears those
// places nor passes them to functions.
func (c *Code) EnvBytes() int {
	switch {
	case c.AnyEffects:
		return int(unsafe.Sizeof(parseEnv{}))
	case c.AsksInside():
		return int(unsafe.Offsetof(parseEnv{}.Effects))
	}
	return int(unsafe.Offsetof(parseEnv{}.Inner))
}

// ClearEnv writes zeroes to the whole environment. The fast path stores only the fields that rules
// ask for, and a function takes only memory that is written throughout (before Linux 6.3 also in
// privileged programs).
func (c *Code) ClearEnv() {
	c.Emit(asm.Mov.Imm(asm.R0, 0))
	for at := At; at < At+int16(c.EnvBytes()); at += 8 {
		c.Emit(asm.StoreMem(asm.R10, at, asm.R0, asm.DWord))
	}
	if c.AnyEffects {
		c.ClearEffects()
	}
}

// ClearEffects puts a zero in the place for effects that the verifier does not know for one. It
// would follow what effects make of it, and no two ways through the rules would be the same to it:
// 40 rules took it a million instructions (docs/explanation/decisions/0034-actions.md).
func (c *Code) ClearEffects() {
	c.Emit(
		asm.LoadMapValue(asm.R0, 0, 0).WithReference(plan.CountersMap),
		asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord),
		asm.Sub.Reg(asm.R0, asm.R0),
		asm.StoreMem(asm.R10, effectsAt, asm.R0, asm.DWord),
	)
}

// BeginFunction begins a global function of the environment, of more numbers and, if it looks at
// the packet, of the context.
func (c *Code) BeginFunction(label string, looks bool, more ...assembler.Param) {
	params := append([]assembler.Param{assembler.Memory("env", c.EnvBytes())}, more...)
	context := asm.R1 + asm.Register(len(params))
	if looks {
		params = append(params, c.ContextParam())
	}
	c.Global(label, params...)
	c.Given()
	c.Emit(asm.StoreMem(asm.R10, Pointer, asm.R1, asm.DWord))
	if looks {
		c.Emit(asm.StoreMem(asm.R10, ctxPointer, context, asm.DWord))
	}
}

// Given has a global function return 0 that is given no memory, with which it has to reckon.
func (c *Code) Given() {
	given := c.Fresh("given")
	c.Emit(
		asm.JNE.Imm(asm.R1, 0, given),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	c.Label(given)
}

// ContextParam returns the context as an argument of a global function. The verifier knows it by
// the name of the struct, for which the kernel needs type information of its own
// (docs/explanation/decisions/0008-no-kernel-types.md).
func (c *Code) ContextParam() assembler.Param {
	if c.Target.Hook.OfSKB() {
		return assembler.Context("__sk_buff")
	}
	return assembler.Context("xdp_md")
}

// Field loads a field of struct key, given by its offset from R10 in the main function.
func (c *Code) Field(to asm.Register, at int16, size asm.Size) {
	if c.InFunction {
		c.Emit(
			asm.LoadMem(to, asm.R10, Pointer, asm.DWord),
			asm.LoadMem(to, to, at-At, size),
		)
		return
	}
	c.Emit(asm.LoadMem(to, asm.R10, at, size))
}

// rowSlot returns where on the stack the address of the row is kept.
func (c *Code) rowSlot() int16 {
	if c.InFunction {
		return rowPointer
	}
	return mainRow
}

// Context loads the program's context.
func (c *Code) Context(to asm.Register) {
	slot := int16(MainCtx)
	if c.InFunction {
		slot = ctxPointer
	}
	c.Emit(asm.LoadMem(to, asm.R10, slot, asm.DWord))
}

// Bounds loads where the frame begins and where its first buffer ends from the context in a
// register, which may be one of the two.
func (c *Code) Bounds(context, data, end asm.Register) {
	dataAt, endAt := int16(xdpData), int16(xdpDataEnd)
	if c.Target.Hook.OfSKB() {
		dataAt, endAt = skbData, skbDataEnd
	}
	if data == context {
		c.Emit(asm.LoadMem(end, context, endAt, asm.Word),
			asm.LoadMem(data, context, dataAt, asm.Word))
		return
	}
	c.Emit(asm.LoadMem(data, context, dataAt, asm.Word), asm.LoadMem(end, context, endAt, asm.Word))
}

// Offsets in struct xdp_md and struct __sk_buff, include/uapi/linux/bpf.h.
const (
	xdpData        = 0
	xdpDataEnd     = 4
	SkbLen         = 0
	SkbMark        = 8
	SkbVLANPresent = 20
	SkbCameBy      = 36 // ingress_ifindex
	SkbIndex       = 40
	skbData        = 76
	skbDataEnd     = 80
	SkbGSOSegs     = 164
	SkbGSOSize     = 176
)
