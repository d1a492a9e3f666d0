package codegen

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
	envAt     = -64 - int16(unsafe.Sizeof(parseEnv{}))
	effectsAt = envAt + int16(unsafe.Offsetof(parseEnv{}.Effects))
	innerAt   = envAt + int16(unsafe.Offsetof(parseEnv{}.Inner))

	keySize = uint32(unsafe.Sizeof(parseKey{}))
	keyAt   = envAt + int16(unsafe.Offsetof(parseEnv{}.Key))
	rowAt   = keyAt + int16(unsafe.Offsetof(parseKey{}.Row))
)

// Offsets from R10 of the fields of struct key.
const (
	keyBytes   = keyAt + int16(unsafe.Offsetof(parseKey{}.Bytes))
	keySrcHi   = keyAt + int16(unsafe.Offsetof(parseKey{}.SrcHi))
	keySrcLo   = keyAt + int16(unsafe.Offsetof(parseKey{}.SrcLo))
	keyDstHi   = keyAt + int16(unsafe.Offsetof(parseKey{}.DstHi))
	keyDstLo   = keyAt + int16(unsafe.Offsetof(parseKey{}.DstLo))
	keySrcPort = keyAt + int16(unsafe.Offsetof(parseKey{}.SrcPort))
	keyDstPort = keyAt + int16(unsafe.Offsetof(parseKey{}.DstPort))
	keyICMP    = keyAt + int16(unsafe.Offsetof(parseKey{}.Icmp))
	keyProto   = keyAt + int16(unsafe.Offsetof(parseKey{}.Proto))
	keyClass   = keyAt + int16(unsafe.Offsetof(parseKey{}.Class))
	keyFlow    = keyAt + int16(unsafe.Offsetof(parseKey{}.Flow))
	keyProof   = keyAt + int16(unsafe.Offsetof(parseKey{}.Proof))
	keyOff     = keyAt + int16(unsafe.Offsetof(parseKey{}.Off))
	keyEcho    = keyAt + int16(unsafe.Offsetof(parseKey{}.TcpFlags)) // of UDP
	keyFrag    = keyAt + int16(unsafe.Offsetof(parseKey{}.Frag))
	keyLeft    = keyAt + int16(unsafe.Offsetof(parseKey{}.Left))
	keyWindow  = keyAt + int16(unsafe.Offsetof(parseKey{}.TcpWindow))
)

// Slots of the main function and of those that are given the environment: its address, this
// CPU's row of counters, and the context. The last two are kept where a rule counts or looks at
// the packet.
const (
	mainRow = envAt - 8
	mainCtx = envAt - 16
	// What follows a call of the interpreter.
	mainBehind = envAt - 24
	// The hash of a packet over UDP that belongs to no known connection; 0 of any other.
	mainStranger = envAt - 32

	// The hash of a flow that may prove itself, before the rules.
	mainEcho = mainBehind

	envPointer = -72
	rowPointer = -80
	ctxPointer = -88
)

// envBytes is how much of the environment a policy uses: nobody clears the places for effects and
// for what is known of packets within tunnels, and no function is given them, where no rule has
// one.
func (c *compiler) envBytes() int {
	switch {
	case c.anyEffects:
		return int(unsafe.Sizeof(parseEnv{}))
	case c.asksInside():
		return int(unsafe.Offsetof(parseEnv{}.Effects))
	}
	return int(unsafe.Offsetof(parseEnv{}.Inner))
}

// clearEnv fills the environment, of which the fast path stores what rules ask for: functions
// may be given memory only that is all written (before Linux 6.3, also by privileged programs).
func (c *compiler) clearEnv() {
	c.Emit(asm.Mov.Imm(asm.R0, 0))
	for at := envAt; at < envAt+int16(c.envBytes()); at += 8 {
		c.Emit(asm.StoreMem(asm.R10, at, asm.R0, asm.DWord))
	}
	if c.anyEffects {
		c.clearEffects()
	}
}

// clearEffects puts a zero in the place for effects that the verifier does not know for one. It
// would follow what effects make of it, and no two ways through the rules would be the same to it:
// 40 rules took it a million instructions (docs/explanation/decisions/0034-actions.md).
func (c *compiler) clearEffects() {
	c.Emit(
		asm.LoadMapValue(asm.R0, 0, 0).WithReference(plan.CountersMap),
		asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord),
		asm.Sub.Reg(asm.R0, asm.R0),
		asm.StoreMem(asm.R10, effectsAt, asm.R0, asm.DWord),
	)
}

// beginFunction begins a global function of the environment, of more numbers and, if it looks at
// the packet, of the context.
func (c *compiler) beginFunction(label string, looks bool, more ...assembler.Param) {
	params := append([]assembler.Param{assembler.Memory("env", c.envBytes())}, more...)
	context := asm.R1 + asm.Register(len(params))
	if looks {
		params = append(params, c.contextParam())
	}
	given := c.Fresh("given")
	c.Global(label, params...)
	c.Emit(
		// A global function has to reckon with no memory at all.
		asm.JNE.Imm(asm.R1, 0, given),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	c.Label(given)
	c.Emit(asm.StoreMem(asm.R10, envPointer, asm.R1, asm.DWord))
	if looks {
		c.Emit(asm.StoreMem(asm.R10, ctxPointer, context, asm.DWord))
	}
}

// contextParam is the context as an argument of a global function. The verifier knows it by the
// name of the struct, for which the kernel needs type information of its own
// (docs/explanation/decisions/0008-no-kernel-types.md).
func (c *compiler) contextParam() assembler.Param {
	if c.target.Hook == TCX {
		return assembler.Context("__sk_buff")
	}
	return assembler.Context("xdp_md")
}

// field loads a field of struct key, given by its offset from R10 in the main function.
func (c *compiler) field(to asm.Register, at int16, size asm.Size) {
	if c.inFunction {
		c.Emit(
			asm.LoadMem(to, asm.R10, envPointer, asm.DWord),
			asm.LoadMem(to, to, at-envAt, size),
		)
		return
	}
	c.Emit(asm.LoadMem(to, asm.R10, at, size))
}

// rowSlot is where on the stack the address of the row is kept.
func (c *compiler) rowSlot() int16 {
	if c.inFunction {
		return rowPointer
	}
	return mainRow
}

// context loads the program's context.
func (c *compiler) context(to asm.Register) {
	slot := int16(mainCtx)
	if c.inFunction {
		slot = ctxPointer
	}
	c.Emit(asm.LoadMem(to, asm.R10, slot, asm.DWord))
}

// bounds loads where the frame begins and where its first buffer ends from the context in a
// register, which may be one of the two.
func (c *compiler) bounds(context, data, end asm.Register) {
	dataAt, endAt := int16(xdpData), int16(xdpDataEnd)
	if c.target.Hook == TCX {
		dataAt, endAt = skbData, skbDataEnd
	}
	if data == context {
		c.Emit(asm.LoadMem(end, context, endAt, asm.Word),
			asm.LoadMem(data, context, dataAt, asm.Word))
		return
	}
	c.Emit(asm.LoadMem(data, context, dataAt, asm.Word), asm.LoadMem(end, context, endAt, asm.Word))
}

// effects gives the address of the place for effects.
func (c *compiler) effects(to asm.Register) {
	if c.inFunction {
		c.Emit(
			asm.LoadMem(to, asm.R10, envPointer, asm.DWord),
			asm.Add.Imm(to, int32(effectsAt-envAt)),
		)
		return
	}
	c.Emit(asm.Mov.Reg(to, asm.R10), asm.Add.Imm(to, int32(effectsAt)))
}

// Offsets in struct xdp_md and struct __sk_buff, include/uapi/linux/bpf.h.
const (
	xdpData        = 0
	xdpDataEnd     = 4
	skbLen         = 0
	skbVLANPresent = 20
	skbData        = 76
	skbDataEnd     = 80
	skbGSOSegs     = 164
	skbGSOSize     = 176
)
